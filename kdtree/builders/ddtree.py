"""The best-first tree of DDTree."""

from numpy.typing import ArrayLike

from kdtree import ops
from kdtree.reference.tree_batch import TreeBatch

from . import nested

__all__ = ["ddtree"]


@nested
def ddtree(root_token_B: ArrayLike, top_logprob_BLK: ArrayLike, top_token_BLK: ArrayLike, budget: int) -> TreeBatch:
    """Keep the `budget` most probable prefixes: `ops.tree_build`, on numba."""
    return ops.tree_build.on("numba")(root_token_B, top_logprob_BLK, top_token_BLK, budget)
