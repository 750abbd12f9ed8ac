"""visibility_packed on the CPU: each row is its parent's words and one more bit."""

import numpy as np
from numba import int32, uint64, void
from numpy.typing import ArrayLike

from kdtree.reference.arrays import Words
from kdtree.reference.tree_checks import as_parents

from ._jit import inp, kernel, out

__all__ = ["visibility_packed"]


def visibility_packed(parent_BN: ArrayLike, node_count_B: ArrayLike) -> Words:
    """Pack the ancestor-only mask into words; see `kdtree.reference.visibility_packed`."""
    parents, counts = as_parents(parent_BN, node_count_B)
    B, N = parents.shape
    visible_BNW = np.empty((B, N, -(-N // 64)), np.uint64)
    fill(parents, counts, visible_BNW)
    return visible_BNW


@kernel(void, inp(int32, 2), inp(int32, 1), out(uint64, 3))
def fill(parent_BN, node_count_B, visible_BNW):
    """Fill the words."""
    for b in range(len(node_count_B)):
        count = node_count_B[b]
        visible_BNW[b, 0] = uint64(0)
        visible_BNW[b, 0, 0] = uint64(1)
        for i in range(1, count):
            parent = parent_BN[b, i]
            visible_BNW[b, i] = visible_BNW[b, parent]
            visible_BNW[b, i, i >> 6] |= uint64(1) << uint64(i & 63)
        visible_BNW[b, count:] = uint64(0)
