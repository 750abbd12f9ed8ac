"""The second truth of tree_build: list every prefix, sort, keep the best. For small given."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from .tree_batch import ROOT, TreeBatch, as_candidates, check_candidates, put_nodes, root_only

__all__ = ["tree_build_by_sorting"]


def tree_build_by_sorting(
    root_token_B: ArrayLike, top_logprob_BLK: ArrayLike, top_token_BLK: ArrayLike, budget: int, pad_token: int = 0
) -> TreeBatch:
    """Take the first `budget` of all prefixes sorted by (-logw, ranks); the arguments are those of `tree_build`.

    This is the definition that the heap implements: sorting never looks at the frontier. The two agree whenever no
    weight rises along a generating path, and that can fail only in the last bit: (w - a) + a may round above w.

    Cost
    ----
    O(B K**L): every prefix of every length is listed.

    Invariants
    ----------
    - equals tree_build where sums are exact (test_the_heap_takes_what_sorting_every_prefix_takes)
    """
    given = as_candidates(root_token_B, top_logprob_BLK, top_token_BLK, budget, pad_token)
    check_candidates(given)
    trees = root_only(given)
    for b, (top_logprob_LK, top_token_LK) in enumerate(zip(given.top_logprob_BLK, given.top_token_BLK, strict=True)):
        every_prefix = prefixes((), 0.0, top_logprob_LK.astype(np.float64))
        best = sorted((-logw, ranks) for ranks, logw in every_prefix)[: given.budget]
        slot_of = {ranks: slot for slot, (_, ranks) in enumerate(best, start=1)} | {(): ROOT}
        put_nodes(trees, b, [(slot_of[ranks[:-1]], ranks, -neg_logw) for neg_logw, ranks in best], top_token_LK)
    return trees


def prefixes(
    ranks: tuple[int, ...], logw: float, top_logprob_LK: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield (ranks, logw) of every extension of `ranks`, weights summed along the generating path."""
    if len(ranks) == len(top_logprob_LK):
        return
    row = top_logprob_LK[len(ranks)]
    for rank, lp in enumerate(row):
        if lp == -np.inf:
            return
        logw = float(logw + lp if rank == 0 else (logw - row[rank - 1]) + lp)
        yield (*ranks, rank), logw
        yield from prefixes((*ranks, rank), logw, top_logprob_LK)
