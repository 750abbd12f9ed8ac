"""The drafter's best token at every depth: no branches."""

import numpy as np
from numpy.typing import ArrayLike

from kdtree.reference.tree_batch import TreeBatch, as_candidates, check_candidates, root_only

from . import nested

__all__ = ["chain"]


@nested
def chain(root_token_B: ArrayLike, top_logprob_BLK: ArrayLike, top_token_BLK: ArrayLike, budget: int) -> TreeBatch:
    """Chain the top-1 tokens, min(budget, L) of them, up to the first row with no candidate.

    Invariants
    ----------
    - it is the best-first tree of K = 1 (test_with_one_candidate_a_depth_the_tree_is_the_chain)
    """
    given = as_candidates(root_token_B, top_logprob_BLK, top_token_BLK, budget, pad_token=0)
    check_candidates(given)
    trees = root_only(given)
    _, L, K = given.top_logprob_BLK.shape
    length = min(given.budget, L) if K else 0
    if length == 0:
        return trees
    with np.errstate(over="ignore"):
        logw_BL = np.cumsum(given.top_logprob_BLK[:, :length, 0], axis=1, dtype=np.float64)
    real_BL = np.logical_and.accumulate(given.top_logprob_BLK[:, :length, 0] > -np.inf, axis=1)
    below = slice(1, length + 1)
    trees.token_BN[:, below][real_BL] = given.top_token_BLK[:, :length, 0][real_BL]
    trees.depth_BN[:, below] = np.where(real_BL, np.arange(1, length + 1), 0)
    trees.parent_BN[:, below] = np.where(real_BL, np.arange(length), -1)
    trees.rank_BN[:, below] = np.where(real_BL, 0, -1)
    trees.logw_BN[:, below] = logw_BL  # -inf from the first -inf on
    trees.node_count_B[:] = 1 + real_BL.sum(axis=1)
    return trees
