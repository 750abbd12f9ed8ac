"""accept_greedy on the CPU."""

import numpy as np
from numba import int32, void
from numpy.typing import ArrayLike

from kdtree.reference.accept_greedy import Acceptance, as_walk
from kdtree.reference.tree_batch import NO_NODE, ROOT

from ._jit import inp, kernel, out

__all__ = ["accept_greedy"]


def accept_greedy(
    token_BN: ArrayLike,
    first_child_BN: ArrayLike,
    next_sibling_BN: ArrayLike,
    node_count_B: ArrayLike,
    target_token_BN: ArrayLike,
) -> Acceptance:
    """Walk down the tree along the target's tokens; see `kdtree.reference.accept_greedy`."""
    walk = as_walk(token_BN, first_child_BN, next_sibling_BN, node_count_B, target_token_BN)
    B, N = walk.token_BN.shape
    accepted = Acceptance(np.empty((B, N), np.int32), np.empty(B, np.int32), np.empty(B, np.int32))
    follow(*walk, *accepted)
    return accepted


@kernel(void, *[inp(int32, 2)] * 3, inp(int32, 1), inp(int32, 2), out(int32, 2), out(int32, 1), out(int32, 1))
def follow(token_BN, first_child_BN, next_sibling_BN, node_count_B, target_token_BN, path_BN, accept_len_B, bonus_B):
    """Fill every output."""
    for b in range(len(node_count_B)):
        path_BN[b] = NO_NODE
        length, slot = 0, ROOT
        while slot != NO_NODE:
            path_BN[b, length] = slot
            length += 1
            bonus_B[b] = target_token_BN[b, slot]
            slot = first_child_BN[b, slot]
            while slot != NO_NODE and token_BN[b, slot] != bonus_B[b]:
                slot = next_sibling_BN[b, slot]
        accept_len_B[b] = length
