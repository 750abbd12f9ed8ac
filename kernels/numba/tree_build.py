"""tree_build on the CPU: Algorithm 1 with a winner tree for a heap.

The frontier holds one candidate a node: the best of its children not yet taken. So a candidate is named by its parent,
and a pop changes two leaves of the winner tree: the parent's (to the next sibling) and the new node's (to its first
child). The path from a leaf to the top is known beforehand and each step is a select, where a heap branches on data.
"""

import numpy as np
from numba import boolean, float64, int32, int64
from numpy.typing import ArrayLike

from kdtree.reference.tree_batch import NO_NODE, ROOT, TreeBatch, as_candidates, check_candidates, empty_batch

from ._jit import device, inp, kernel, out

__all__ = ["tree_build"]


def tree_build(
    root_token_B: ArrayLike, top_logprob_BLK: ArrayLike, top_token_BLK: ArrayLike, budget: int, pad_token: int = 0
) -> TreeBatch:
    """Build best-first trees; see `kdtree.reference.tree_build`."""
    given = as_candidates(root_token_B, top_logprob_BLK, top_token_BLK, budget, pad_token)
    trees = empty_batch(len(given.root_token_B), given.budget)
    logprob_BLK = np.asarray(given.top_logprob_BLK, np.float64)  # exact, and one signature serves both dtypes
    if not build_batch(given.root_token_B, logprob_BLK, given.top_token_BLK, given.budget, given.pad_token, *trees):
        check_candidates(given)
    return trees


@device
def grow(logprob_LK, token_LK, budget, token_N, depth_N, parent_N, rank_N, logw_N, next_rank_N, next_logw_N, winner):
    """Fill one tree below its root and return its node count.

    next_rank_N and next_logw_N are each node's candidate (rank NO_NODE: none left). winner[i] is the node whose
    candidate is best below i; the leaves stand at winner[leaves:], and winner[1] is popped next.
    """
    L, K = logprob_LK.shape
    width = min(budget, K)
    leaves = len(next_rank_N)
    next_rank_N[:] = NO_NODE
    next_logw_N[:] = -np.inf
    for i in range(leaves):
        winner[leaves + i] = i
    for i in range(leaves - 1, 0, -1):
        winner[i] = winner[2 * i]
    if L > 0 and width > 0 and logprob_LK[0, 0] > -np.inf:
        next_rank_N[ROOT] = 0
        next_logw_N[ROOT] = logprob_LK[0, 0]

    for node in range(1, budget + 1):
        parent = winner[1]
        rank, logw = next_rank_N[parent], next_logw_N[parent]
        if rank == NO_NODE:
            return node
        depth = depth_N[parent] + 1
        token_N[node] = token_LK[depth - 1, rank]
        depth_N[node] = depth
        parent_N[node] = parent
        rank_N[node] = rank
        logw_N[node] = logw

        sibling = rank + 1
        if sibling < width and logprob_LK[depth - 1, sibling] > -np.inf:
            next_rank_N[parent] = sibling
            next_logw_N[parent] = (logw - logprob_LK[depth - 1, rank]) + logprob_LK[depth - 1, sibling]
        else:
            next_rank_N[parent] = NO_NODE
            next_logw_N[parent] = -np.inf
        replay_winner(parent, next_rank_N, next_logw_N, winner, depth_N, parent_N, rank_N)

        if depth < L and node < budget and logprob_LK[depth, 0] > -np.inf:
            next_rank_N[node] = 0
            next_logw_N[node] = logw + logprob_LK[depth, 0]
            enter(node, next_rank_N, next_logw_N, winner, depth_N, parent_N, rank_N)
    return budget + 1


@device
def replay_winner(best, next_rank_N, next_logw_N, winner, depth_N, parent_N, rank_N):
    """Play the changed candidate of the overall winner `best` against every rival up to the top."""
    i = len(next_rank_N) + best
    best_logw = next_logw_N[best]
    while i > 1:
        rival = winner[i ^ 1]
        rival_logw = next_logw_N[rival]
        if rival_logw == best_logw:
            if ties_before(rival, best, next_rank_N, depth_N, parent_N, rank_N):
                best = rival
        else:
            best = rival if rival_logw > best_logw else best
            best_logw = max(rival_logw, best_logw)
        i >>= 1
        winner[i] = best


@device
def enter(node, next_rank_N, next_logw_N, winner, depth_N, parent_N, rank_N):
    """Let the first candidate of a new node rise until it loses: above that nothing changes."""
    logw = next_logw_N[node]
    i = (len(next_rank_N) + node) >> 1
    while i > 0:
        rival = winner[i]
        rival_logw = next_logw_N[rival]
        if rival_logw > logw:
            return
        if rival_logw == logw and ties_before(rival, node, next_rank_N, depth_N, parent_N, rank_N):
            return
        winner[i] = node
        i >>= 1


@device
def ties_before(a, b, next_rank_N, depth_N, parent_N, rank_N):
    """Compare the candidates of nodes a and b by their ranks from the root; an exhausted node comes last."""
    rank_a, rank_b = next_rank_N[a], next_rank_N[b]
    if rank_a == NO_NODE or rank_b == NO_NODE:
        return rank_b == NO_NODE
    a_is_shorter = depth_N[a] < depth_N[b]
    while depth_N[a] > depth_N[b]:
        rank_a, a = rank_N[a], parent_N[a]
    while depth_N[b] > depth_N[a]:
        rank_b, b = rank_N[b], parent_N[b]
    while a != b:
        rank_a, a = rank_N[a], parent_N[a]
        rank_b, b = rank_N[b], parent_N[b]
    if rank_a == rank_b:
        return a_is_shorter
    return rank_a < rank_b


@device
def acceptable(root_token_B, logprob_BLK, token_BLK):
    """Tell whether check_candidates would pass; without branches, so that it costs little."""
    B, L, K = logprob_BLK.shape
    good = True
    sign = int32(0)
    for b in range(B):
        sign |= root_token_B[b]
        for d in range(L):
            for r in range(K):
                sign |= token_BLK[b, d, r]
            if K > 0:
                good &= logprob_BLK[b, d, 0] < np.inf
            for r in range(1, K):
                good &= logprob_BLK[b, d, r] <= logprob_BLK[b, d, r - 1]
    return good and sign >= 0


@kernel(
    boolean,
    *(inp(int32, 1), inp(float64, 3), inp(int32, 3), int64, int64),
    *(out(int32, 2), out(int32, 2), out(int32, 2), out(int32, 2), out(float64, 2), out(int32, 1)),
)
def build_batch(
    root_token_B, logprob_BLK, token_BLK, budget, pad_token,
    token_BN, depth_BN, parent_BN, rank_BN, logw_BN, node_count_B,
):  # fmt: skip
    """Fill every output; return False, with the outputs undefined, if an input is not acceptable."""
    if not acceptable(root_token_B, logprob_BLK, token_BLK):
        return False
    leaves = 1
    while leaves < budget:  # the last node needs no leaf: nothing is popped after it
        leaves *= 2
    next_rank_N = np.empty(leaves, np.int32)
    next_logw_N = np.empty(leaves, np.float64)
    winner = np.empty(2 * leaves, np.int32)
    for b in range(len(root_token_B)):
        token_BN[b, 0], depth_BN[b, 0], parent_BN[b, 0], rank_BN[b, 0] = root_token_B[b], 0, NO_NODE, NO_NODE
        logw_BN[b, 0] = 0.0
        count = grow(
            logprob_BLK[b], token_BLK[b], budget,
            token_BN[b], depth_BN[b], parent_BN[b], rank_BN[b], logw_BN[b], next_rank_N, next_logw_N, winner,
        )  # fmt: skip
        token_BN[b, count:] = pad_token
        depth_BN[b, count:] = 0
        parent_BN[b, count:] = NO_NODE
        rank_BN[b, count:] = NO_NODE
        logw_BN[b, count:] = -np.inf
        node_count_B[b] = count
    return True
