"""Pick the prompts of the traces: the starts of lines of held-out files, and what follows.

    python data/train/prompts.py

Needs corpus.py to have run. Writes data/prompts.jsonl.
"""

import json

import numpy as np

from corpus import HERE, Tokens, load
from kdtree.files import atomic_write
from sizes import BOS, SEED

__all__ = ["pick"]

PROMPTS = HERE.parent / "prompts.jsonl"
COUNT, LENGTH = 48, 128  # prompts, bytes of each
BEHIND = 512  # bytes of the file that must follow a prompt


def pick(held_out_T: Tokens, count: int) -> list[str]:
    """Return prompts that go round the held-out files, one of each in turn; no two overlap."""
    rng = np.random.default_rng(SEED)
    files = [bytes(file_T.astype(np.uint8)) for file_T in np.split(held_out_T, np.flatnonzero(held_out_T == BOS))[1:]]
    starts = {file[1:]: line_starts(file[1:], rng) for file in files if len(file) > LENGTH + BEHIND}
    prompts: list[str] = []
    while len(prompts) < count:
        for content, start_of in starts.items():
            if start_of:
                start = start_of.pop()
                prompts.append(content[start : start + LENGTH].decode())
    return prompts[:count]


def line_starts(content: bytes, rng: np.random.Generator) -> list[int]:
    """Return starts of lines, shuffled, whose prompts are ASCII, begin with a word and do not overlap."""
    kept: list[int] = []
    for start in rng.permutation([0, *(i + 1 for i, byte in enumerate(content) if byte == ord("\n"))]).tolist():
        prompt = content[start : start + LENGTH]
        fits = start + LENGTH + BEHIND <= len(content) and prompt.isascii() and prompt[:1] not in (b"\n", b"\t")
        if fits and all(abs(start - other) >= LENGTH for other in kept):
            kept.append(start)
    return kept


def main() -> None:
    """Write the prompts, one a line."""
    lines = "".join(json.dumps({"text": prompt}) + "\n" for prompt in pick(load().held_out_T, COUNT))
    with atomic_write(PROMPTS) as file:
        file.write(lines.encode())


if __name__ == "__main__":
    main()
