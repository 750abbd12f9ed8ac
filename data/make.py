"""Make the shipped data from its sources, bit for bit: python data/make.py tree_build.npz pilot_t05.npz."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from kdtree import Trace, kdtr

HERE = Path(__file__).parent

GOLDEN = {
    "source": "published DDTree code, commit c96427a; links as in the SGLang port",
    "visibility": "row i of a case, bit j % 64 of word j // 64: slot j is visible from slot i",
}
PILOT = {  # how the trace was recorded; data/README.md says more
    "vocab_size": "258",
    "tokens": "bytes",
    "decoding": "seeded sampling, T = 0.5",
    "target": "byte-level MLA + MoE transformer, 0.52 M parameters",
    "drafter": "block diffusion, block 8, 0.36 M parameters",
    "prompts": "held-out files of CPython's standard library",
}


def words(visible_NN: np.ndarray) -> np.ndarray:
    """Pack rows of a mask into 64-bit words: an eighth of the bytes."""
    N = len(visible_NN)
    padded = np.zeros((N, -(-N // 64) * 64), bool)
    padded[:, :N] = visible_NN
    return np.packbits(padded, axis=1, bitorder="little").view("<u8")


def smaller(name: str, array: np.ndarray) -> np.ndarray:
    """Pack masks and halve integers."""
    if name.endswith("/visibility"):
        return words(array)
    if array.dtype == np.int64:
        assert (array == array.astype(np.int32)).all(), name
        return array.astype(np.int32)
    return array


def main(golden: str, pilot: str) -> None:
    """Write both files."""
    with np.load(golden) as cases:
        kdtr.save(
            HERE / "golden" / "tree_build.kdtr", {name: smaller(name, cases[name]) for name in cases.files}, GOLDEN
        )
    trace = replace(Trace.load(pilot), metadata=PILOT)
    trace.validate()
    trace.save(HERE / "traces" / "pilot_t05.kdtr")


if __name__ == "__main__":
    main(*sys.argv[1:])
