"""Speculative decoding on numba against plain exact decoding on numpy: python benchmarks/decode.py."""

from functools import partial
from pathlib import Path

import numpy as np
from timing import take_turns

import kdtree
from kdtree import Target, autoregressive, load_model, speculative
from kdtree.drafters.oracle import Oracle

CHECKPOINTS = Path(kdtree.__file__).parent / "data" / "golden" / "hf"
NEW_TOKENS, BUDGET, DRAFT_LEN, BAR = 96, 32, 7, 3.0


def compare(name: str, error_rate: float) -> None:
    """Check that every way writes the same tokens, then print how many times as fast as the plain one it is."""
    weights = load_model(CHECKPOINTS / name)
    vocab_size = weights.config.vocab_size
    prompts = [np.random.default_rng(b).integers(0, vocab_size, 16 + b).tolist() for b in range(4)]
    exact, fast = Target(weights, exact=True), Target(weights, backend="numba")
    plain = partial(autoregressive, exact, prompts, max_new_tokens=NEW_TOKENS)
    written = [sequence.tokens for sequence in plain().sequences]
    oracle = Oracle(prompts, written, draft_len=DRAFT_LEN, vocab_size=vocab_size, error_rate=error_rate)
    runs = {
        "plain, numpy, exact": plain,
        "plain, numba": partial(autoregressive, fast, prompts, max_new_tokens=NEW_TOKENS),
        "ddtree, numba": partial(speculative, fast, oracle, prompts, budget=BUDGET, max_new_tokens=NEW_TOKENS),
    }
    for run in runs.values():
        assert [sequence.tokens for sequence in run().sequences] == written
    times = take_turns(runs, seconds=4.0)
    done = runs["ddtree, numba"]()
    gain = times.ratio("plain, numpy, exact", "ddtree, numba")
    print(f"{name}, oracle wrong with probability {error_rate}: {done.tau:.2f} tokens a round, budget {BUDGET}")
    print(f"  against plain decoding in exact numpy: {gain:.1f}x the tokens a second (bar {BAR:.0f}x: {met(gain)})")
    print(f"  against plain decoding on numba: {times.ratio('plain, numba', 'ddtree, numba'):.1f}x")
    total = sum(done.seconds.values())
    print("  a round's time: " + ", ".join(f"{stage} {seconds / total:.0%}" for stage, seconds in done.seconds.items()))


def met(gain: float) -> str:
    """Say whether the bar is met."""
    return "met" if gain >= BAR else "MISSED"


def main() -> None:
    """Print both checkpoints with a good and a middling drafter."""
    for name in ("full", "k26"):
        for error_rate in (0.1, 0.4):
            compare(name, error_rate)


if __name__ == "__main__":
    main()
