"""Links from parents: first child and next sibling."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Index
from .tree_batch import NO_NODE, ROOT
from .tree_checks import as_parents

__all__ = ["Links", "retrieve"]


class Links(NamedTuple):
    """The children of a slot are first_child, then next_sibling after next_sibling; -1 ends."""

    first_child_BN: Index  #: slot of the first child, NO_NODE if there is none
    next_sibling_BN: Index  #: slot of the next child of the same parent, NO_NODE at the last


def retrieve(parent_BN: ArrayLike, node_count_B: ArrayLike) -> Links:
    """Link each slot to its first child and its next sibling, siblings in slot order.

    Parameters
    ----------
    parent_BN : int, shape (B, N)
        Slot of each slot's parent, before it; -1 at the root, slot 0. Padded slots are not read.
    node_count_B : int, shape (B,)
        Real slots of each tree, 1..N.

    Returns
    -------
    Links
        Both of shape (B, N); padded slots hold -1.

    Raises
    ------
    ShapeError
        A shape or dtype does not fit the argument's name.
    TreeError
        A node count or a parent is out of range, or a parent does not precede its child.

    Source
    ------
    The retrieve arrays of SGLang's tree verification.

    Cost
    ----
    O(B N) time and memory.

    Invariants
    ----------
    - following the links lists each slot's children in slot order (test_links_list_the_children_of_every_slot_in_order)
    - walks by link and by child map agree (test_the_link_walk_and_the_child_map_walk_agree)

    Examples
    --------
    >>> retrieve([[-1, 0, 0, 1]], [4])
    Links(first_child_BN=array([[ 1,  3, -1, -1]], dtype=int32), next_sibling_BN=array([[-1,  2, -1, -1]], dtype=int32))
    """
    parents, counts = as_parents(parent_BN, node_count_B)
    first_child_BN = np.full(parents.shape, NO_NODE, np.int32)
    next_sibling_BN = np.full(parents.shape, NO_NODE, np.int32)
    for b, n in enumerate(counts):
        for i in range(n - 1, ROOT, -1):  # backwards, so that the earliest child is linked last
            parent = parents[b, i]
            next_sibling_BN[b, i] = first_child_BN[b, parent]
            first_child_BN[b, parent] = i
    return Links(first_child_BN, next_sibling_BN)
