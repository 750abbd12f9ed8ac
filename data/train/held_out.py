"""Measure held-out bits per byte with the numpy reference, next to xz and zlib on the same bytes.

    python data/train/held_out.py [--model FOLDER]

Needs corpus.py to have run. Writes held_out.json beside the corpus; half an hour on one core.
"""

import argparse
import json
import lzma
import zlib
from pathlib import Path

import numpy as np
from rich.progress import track

from corpus import OUT, Tokens, load
from kdtree import Target, load_model
from kdtree.files import atomic_write
from kdtree.shipped import TARGET
from sizes import BOS

__all__ = ["window_nats"]


def window_nats(target: Target, token_T: Tokens) -> float:
    """Return the nats that the target spends on a window of tokens but its first."""
    hidden_YTD = target.read(target.new_cache(1), 0, token_T.astype(np.int32))
    logit_TV = (hidden_YTD[-1, :-1] @ target.weights.lm_head_VD.T).astype(np.float64)
    peak_T = logit_TV.max(axis=1)
    total_T = peak_T + np.log(np.exp(logit_TV - peak_T[:, None]).sum(axis=1))
    return float((total_T - logit_TV[np.arange(len(total_T)), token_T[1:]]).sum())


def main() -> None:
    """Measure, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=TARGET)
    target = Target(load_model(parser.parse_args().model))
    held_out_T, length = load().held_out_T, target.config.max_position_embeddings
    window_NT = held_out_T[: len(held_out_T) // length * length].reshape(-1, length)
    nats = sum(window_nats(target, token_T) for token_T in track(window_NT, "held out"))
    text = held_out_T[held_out_T != BOS].astype(np.uint8).tobytes()
    figures = {
        "bytes": len(text),
        "windows": len(window_NT),
        "window": length,
        "bits_per_byte": nats / np.log(2) / (len(window_NT) * (length - 1)),
        "xz": 8 * len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)) / len(text),
        "zlib": 8 * len(zlib.compress(text, 9)) / len(text),
    }
    with atomic_write(OUT / "held_out.json") as file:
        file.write(json.dumps(figures, indent=2).encode())
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
