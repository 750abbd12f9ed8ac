"""retrieve on the CPU."""

import numpy as np
from numba import int32, void
from numpy.typing import ArrayLike

from kdtree.reference.retrieve import Links
from kdtree.reference.tree_batch import NO_NODE
from kdtree.reference.tree_checks import as_parents

from ._jit import inp, kernel, out

__all__ = ["retrieve"]


def retrieve(parent_BN: ArrayLike, node_count_B: ArrayLike) -> Links:
    """Link each slot to its first child and its next sibling; see `kdtree.reference.retrieve`."""
    parents, counts = as_parents(parent_BN, node_count_B)
    links = Links(np.empty(parents.shape, np.int32), np.empty(parents.shape, np.int32))
    fill(parents, counts, *links)
    return links


@kernel(void, inp(int32, 2), inp(int32, 1), out(int32, 2), out(int32, 2))
def fill(parent_BN, node_count_B, first_child_BN, next_sibling_BN):
    """Fill both."""
    for b in range(len(node_count_B)):
        count = node_count_B[b]
        first_child_BN[b] = NO_NODE
        next_sibling_BN[b] = NO_NODE
        for i in range(count - 1, 0, -1):  # backwards, so that the earliest child is linked last
            parent = parent_BN[b, i]
            next_sibling_BN[b, i] = first_child_BN[b, parent]
            first_child_BN[b, parent] = i
