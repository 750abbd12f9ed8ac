"""The pair of models that comes with the project, and prompts for it (data/README.md)."""

from importlib.resources import files
from pathlib import Path

import numpy as np

from .drafter_loading import load_drafter
from .drafters.block_diffusion import BlockDiffusion
from .hf_config import byte_start, parse_config
from .hf_tensors import parsed
from .loading import load_model
from .prompts import read_prompts
from .reference.arrays import Index
from .target import Target

__all__ = ["DRAFTER", "PROMPTS", "TARGET", "tiny_pair", "tiny_prompts"]

DATA = Path(str(files("kdtree"))) / "data"
TARGET, DRAFTER = DATA / "models" / "tiny-target", DATA / "models" / "tiny-drafter"
PROMPTS = DATA / "prompts.jsonl"


def tiny_pair(backend: str = "numba", exact: bool = False) -> tuple[Target, BlockDiffusion]:
    """Load a target that writes Python, byte by byte, and the block-diffusion drafter that was trained beside it.

    Parameters
    ----------
    backend, exact
        Of the target; see `kdtree.Target`. The drafter is exact.

    Returns
    -------
    target : Target
        4.1 million parameters, vocabulary 258: the bytes, BOS = 256, MASK = 257; at most 512 positions.
    drafter : BlockDiffusion
        1.9 million parameters, L = 15.

    Invariants
    ----------
    - a live run has the rounds of the shipped traces (test_a_live_run_of_the_shipped_pair_has_the_rounds_of_its_traces)

    Examples
    --------
    >>> from kdtree import speculative
    >>> target, drafter = tiny_pair()
    >>> prompt = [256, *b"import numpy as np\\n\\n\\ndef main():\\n    "]
    >>> bytes(speculative(target, drafter, [prompt], budget=64, max_new_tokens=9).sequences[0].tokens)
    b'import os'
    """
    weights = load_model(TARGET)
    return Target(weights, backend, exact), BlockDiffusion(load_drafter(DRAFTER), weights, exact=True)


def tiny_prompts() -> list[Index]:
    """Return 48 prompts for the pair: 128 bytes each of files that it was not trained on, behind BOS."""
    config, start = parsed(TARGET / "config.json", parse_config), parsed(TARGET / "config.json", byte_start)
    prompts = read_prompts(PROMPTS, start, config.vocab_size, config.max_position_embeddings)
    return [np.array(prompt, np.int32) for prompt in prompts]
