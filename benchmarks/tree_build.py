"""numba's tree_build against the same heap in plain Python: python benchmarks/tree_build.py."""

import numpy as np
from timing import take_turns

from kdtree import ops
from kdtree.reference.tree_build import best_first

L = 16
BARS = {64: 20, 1024: 12}  # at least so many times as fast as the truth, a batch of 64


def marginals(batch: int, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw rows that are peaked at small depths and flat at large ones, as a drafter's are."""
    rng = np.random.default_rng(0)
    sharpness = np.linspace(4, 1, L)[None, :, None]
    logits = -np.sort(-rng.normal(size=(batch, L, K)) * sharpness)
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    token = rng.integers(0, 150_000, (batch, L, K)).astype(np.int32)
    return np.zeros(batch, np.int32), log_probs.astype(np.float32), token


def compare(budget: int, batch: int) -> None:
    """Print how many times faster numba is than each plain-Python form, after a check that they agree."""
    inputs = marginals(batch, min(budget, 256))
    fast, truth = ops.tree_build.on("numba")(*inputs, budget), ops.tree_build(*inputs, budget)
    for name, array, other in zip(truth._fields, fast, truth, strict=True):
        np.testing.assert_array_equal(array, other, err_msg=name)
    rows = inputs[1].tolist()
    times = take_turns(
        {
            "numba": lambda: ops.tree_build.on("numba")(*inputs, budget),
            "truth": lambda: ops.tree_build(*inputs, budget),
            "bare heap": lambda: [best_first(row, budget) for row in rows],
        },
        seconds=3.0,
    )
    truth_ratio, heap_ratio = (times.ratio(peer, "numba") for peer in ("truth", "bare heap"))
    bar = (
        f"{BARS[budget]}x: {'met' if truth_ratio >= BARS[budget] else 'MISSED'}"
        if batch == 64 and budget in BARS
        else ""
    )
    print(f"{budget:6}  {batch:5}  {truth_ratio:9.1f}x  {heap_ratio:9.1f}x  {bar}")


def main() -> None:
    """Print the table."""
    print(f"tree_build, L = {L}, K = min(budget, 256): times that numba is faster than")
    print("  the truth: ops.tree_build, a heapq of Python with the same arguments, checks and results")
    print("  the bare heap: its best_first alone, lists in and tuples out, nothing checked")
    print(f"{'budget':>6}  {'batch':>5}  {'truth':>10}  {'bare heap':>10}  bar")
    for budget in (64, 256, 1024):
        for batch in (1, 64):
            compare(budget, batch)


if __name__ == "__main__":
    main()
