"""Algorithm 1 of DDTree: the best-first tree of a product of marginals."""

from heapq import heappop, heappush
from math import inf

from numpy.typing import ArrayLike

from .tree_batch import ROOT, Node, TreeBatch, as_candidates, check_candidates, put_nodes, root_only

__all__ = ["tree_build"]


def tree_build(
    root_token_B: ArrayLike, top_logprob_BLK: ArrayLike, top_token_BLK: ArrayLike, budget: int, pad_token: int = 0
) -> TreeBatch:
    """Build, for each batch row, the `budget` most probable prefixes under the drafter's marginals.

    The marginals q_1..q_L give a prefix y of length d the weight log q(y) = sum over i <= d of log q_i(y_i). Pop the
    heaviest candidate; it becomes the next node; push its next sibling and its first child:

        logw(sibling) = (logw - lp[d][r]) + lp[d][r + 1]        if r + 1 < min(budget, K)
        logw(child)   =  logw + lp[d + 1][0]                     if d < L

    Sums are float64, in exactly this order: another last bit is another tree. Equal weights go to the smaller tuple of
    ranks, and a prefix sorts before its extensions.

    Parameters
    ----------
    root_token_B : int, shape (B,)
        Last committed token of each sequence. The root is not counted in the budget.
    top_logprob_BLK : float32 or float64, shape (B, L, K), nats
        Log-probs of the K best tokens for each of the L next positions, largest first. -inf ends a row: it and all
        after it are no candidates.
    top_token_BLK : int, shape (B, L, K)
        Their tokens, 0 <= token < 2**31. A token that a row repeats makes separate nodes.
    budget : int
        Most nodes below the root, 0 or more. N = budget + 1.
    pad_token : int
        Token of the padded slots.

    Returns
    -------
    TreeBatch
        Nodes in pop order. `node_count_B` is 1 + min(budget, prefixes that exist).

    Raises
    ------
    ShapeError
        A shape or dtype does not fit the argument's name.
    ValueError
        A negative budget or token, a NaN, a +inf, or a row that is not sorted.

    Source
    ------
    Ringel and Romano, arXiv 2604.12989, Algorithm 1.

    Cost
    ----
    O(B budget (log budget + L)) time, O(B N) memory.

    Invariants
    ----------
    - every node's parent is in the tree and comes before it (test_trees_are_prefix_closed)
    - a smaller budget's tree is the first nodes of a larger one's (test_trees_are_nested_over_budgets)
    - no prefix left out outweighs one taken (test_no_tree_of_this_budget_has_more_surrogate_mass)
    - the heap takes what sorting all prefixes takes (test_the_heap_takes_what_sorting_every_prefix_takes)
    - a row depends on no other row (test_batch_rows_do_not_influence_each_other)

    Examples
    --------
    >>> lp = np.log(np.float32([[[0.6, 0.4], [0.9, 0.1]]]))
    >>> tree = tree_build([7], lp, [[[10, 11], [20, 21]]], budget=3)
    >>> tree.token_BN.tolist(), tree.parent_BN.tolist()
    ([[7, 10, 20, 11]], [[-1, 0, 1, 0]])
    """
    given = as_candidates(root_token_B, top_logprob_BLK, top_token_BLK, budget, pad_token)
    check_candidates(given)
    trees = root_only(given)
    for b, (top_logprob_LK, top_token_LK) in enumerate(zip(given.top_logprob_BLK, given.top_token_BLK, strict=True)):
        put_nodes(trees, b, best_first(top_logprob_LK.tolist(), given.budget), top_token_LK)
    return trees


def best_first(logprob: list[list[float]], budget: int) -> list[Node]:
    """Return (parent, ranks, logw) of each node below the root, in pop order. A Python float is a float64."""
    depth_limit = len(logprob)
    width = min(budget, len(logprob[0])) if logprob else 0
    nodes: list[Node] = []
    frontier: list[tuple[float, tuple[int, ...], int]] = []
    if width and logprob[0][0] > -inf:
        frontier.append((-logprob[0][0], (0,), ROOT))
    while frontier and len(nodes) < budget:
        neg_logw, ranks, parent = heappop(frontier)
        logw = -neg_logw
        nodes.append((parent, ranks, logw))
        depth, rank = len(ranks), ranks[-1]
        row = logprob[depth - 1]
        if rank + 1 < width and row[rank + 1] > -inf:
            sibling = (logw - row[rank]) + row[rank + 1]
            heappush(frontier, (-sibling, (*ranks[:-1], rank + 1), parent))
        if depth < depth_limit and logprob[depth][0] > -inf:
            heappush(frontier, (-(logw + logprob[depth][0]), (*ranks, 0), len(nodes)))
    return nodes
