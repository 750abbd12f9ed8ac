"""visibility on the CPU: each row is its parent's row and one more bit."""

import numpy as np
from numba import boolean, int32, void
from numpy.typing import ArrayLike

from kdtree.reference.arrays import Bool
from kdtree.reference.tree_checks import as_parents

from ._jit import inp, kernel, out

__all__ = ["visibility"]


def visibility(parent_BN: ArrayLike, node_count_B: ArrayLike) -> Bool:
    """Tell which slots each slot may attend to; see `kdtree.reference.visibility`."""
    parents, counts = as_parents(parent_BN, node_count_B)
    B, N = parents.shape
    visible_BNN = np.empty((B, N, N), np.bool_)
    fill(parents, counts, visible_BNN)
    return visible_BNN


@kernel(void, inp(int32, 2), inp(int32, 1), out(boolean, 3))
def fill(parent_BN, node_count_B, visible_BNN):
    """Fill the mask."""
    for b in range(len(node_count_B)):
        count = node_count_B[b]
        visible_BNN[b, 0] = False
        visible_BNN[b, 0, 0] = True
        for i in range(1, count):
            parent = parent_BN[b, i]
            visible_BNN[b, i] = visible_BNN[b, parent]
            visible_BNN[b, i, i] = True
        visible_BNN[b, count:] = False
