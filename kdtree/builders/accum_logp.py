"""Expand the most probable node fully, again and again."""

from heapq import heappop, heappush
from math import inf

from numpy.typing import ArrayLike

from kdtree.reference.arrays import count
from kdtree.reference.tree_batch import ROOT, Node, TreeBatch, as_candidates, check_candidates, put_nodes, root_only

from . import nested

__all__ = ["accum_logp"]


@nested
def accum_logp(
    root_token_B: ArrayLike, top_logprob_BLK: ArrayLike, top_token_BLK: ArrayLike, budget: int, *, width: int = 0
) -> TreeBatch:
    """Pop the node of the largest accumulated log-prob and add its K best children at once, until the budget.

    Equal weights go to the smaller tuple of ranks. A child weighs logw(parent) + lp[depth][rank].

    Parameters
    ----------
    root_token_B, top_logprob_BLK, top_token_BLK, budget
        As in `kdtree.reference.tree_build`.
    width : int
        Children of a node; 0 takes all K columns, which spends a budget below K on the first depth alone.

    Source
    ------
    `accum_logp` of JetSpec's registry of tree algorithms.

    Invariants
    ----------
    - trees are nested (test_every_builder_declared_nested_is_nested)
    """
    given = as_candidates(root_token_B, top_logprob_BLK, top_token_BLK, budget, pad_token=0)
    check_candidates(given)
    width = count("width", width) or given.top_logprob_BLK.shape[2]
    trees = root_only(given)
    for b, (logprob_LK, token_LK) in enumerate(zip(given.top_logprob_BLK, given.top_token_BLK, strict=True)):
        nodes = expand(logprob_LK[:, :width].tolist(), given.budget)
        put_nodes(trees, b, nodes, token_LK)
    return trees


def expand(logprob: list[list[float]], budget: int) -> list[Node]:
    """Return the nodes below the root in the order of their adding."""
    nodes: list[Node] = []
    frontier: list[tuple[float, tuple[int, ...], int]] = [(-0.0, (), ROOT)]
    while frontier and len(nodes) < budget:
        neg_logw, ranks, slot = heappop(frontier)
        if len(ranks) == len(logprob):
            continue
        for rank, lp in enumerate(logprob[len(ranks)]):
            if lp == -inf or len(nodes) == budget:
                break
            child = (*ranks, rank)
            nodes.append((slot, child, lp - neg_logw))
            heappush(frontier, (neg_logw - lp, child, len(nodes)))
    return nodes
