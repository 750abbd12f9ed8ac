"""visibility_intervals on the CPU."""

import numpy as np
from numba import int32, void
from numpy.typing import ArrayLike

from kdtree.reference.tree_checks import as_parents
from kdtree.reference.visibility_intervals import Intervals

from ._jit import inp, kernel, out

__all__ = ["visibility_intervals"]


def visibility_intervals(parent_BN: ArrayLike, node_count_B: ArrayLike) -> Intervals:
    """Number the slots in preorder; see `kdtree.reference.visibility_intervals`."""
    parents, counts = as_parents(parent_BN, node_count_B)
    intervals = Intervals(np.empty(parents.shape, np.int32), np.empty(parents.shape, np.int32))
    fill(parents, counts, *intervals)
    return intervals


@kernel(void, inp(int32, 2), inp(int32, 1), out(int32, 2), out(int32, 2))
def fill(parent_BN, node_count_B, pre_BN, size_BN):
    """Fill both."""
    next_pre_N = np.empty(parent_BN.shape[1], np.int32)  # where the next child of a slot goes
    for b in range(len(node_count_B)):
        count = node_count_B[b]
        size_BN[b, :count] = 1
        size_BN[b, count:] = 0
        for i in range(count - 1, 0, -1):
            parent = parent_BN[b, i]
            size_BN[b, parent] += size_BN[b, i]
        pre_BN[b, 0] = 0
        next_pre_N[0] = 1
        for i in range(1, count):
            parent = parent_BN[b, i]
            pre_BN[b, i] = next_pre_N[parent]
            next_pre_N[parent] += size_BN[b, i]
            next_pre_N[i] = pre_BN[b, i] + 1
        pre_BN[b, count:] = -1
