"""The ancestor-only mask as intervals of the preorder: O(N) memory."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Index
from .tree_batch import NO_NODE, ROOT
from .tree_checks import as_parents

__all__ = ["Intervals", "visibility_intervals"]


class Intervals(NamedTuple):
    """Slot j is visible from slot i iff pre[j] <= pre[i] < pre[j] + size[j]."""

    pre_BN: Index  #: place of the slot in the preorder, 0 at the root; -1 in padded slots
    size_BN: Index  #: slots in the subtree, itself included; 0 in padded slots


def visibility_intervals(parent_BN: ArrayLike, node_count_B: ArrayLike) -> Intervals:
    """Number the slots in preorder, siblings in slot order, and measure their subtrees.

    Parameters
    ----------
    parent_BN, node_count_B
        As in `visibility`.

    Returns
    -------
    Intervals
        j is visible from i iff pre[j] <= pre[i] < pre[j] + size[j]; padded slots see and are seen by nothing.

    Raises
    ------
    ShapeError, TreeError
        As in `visibility`.

    Cost
    ----
    O(B N) time and memory.

    Invariants
    ----------
    - the three forms say the same (test_the_three_forms_of_visibility_agree)

    Examples
    --------
    >>> visibility_intervals([[-1, 0, 0, 1]], [4])
    Intervals(pre_BN=array([[0, 1, 3, 2]], dtype=int32), size_BN=array([[4, 2, 1, 1]], dtype=int32))
    """
    parents, counts = as_parents(parent_BN, node_count_B)
    pre_BN = np.full(parents.shape, NO_NODE, np.int32)
    size_BN = np.zeros(parents.shape, np.int32)
    for parent_N, n, pre_N, size_N in zip(parents, counts, pre_BN, size_BN, strict=True):
        size_N[:n] = 1
        for i in range(n - 1, ROOT, -1):  # a subtree is complete before its parent is reached
            size_N[parent_N[i]] += size_N[i]
        pre_N[ROOT] = 0
        next_pre_N = np.ones(n, np.int32)  # where the next child of a slot goes
        for i in range(1, n):
            pre_N[i] = next_pre_N[parent_N[i]]
            next_pre_N[parent_N[i]] += size_N[i]
            next_pre_N[i] = pre_N[i] + 1
    return Intervals(pre_BN, size_BN)
