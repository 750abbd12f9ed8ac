"""The ancestor-only mask, as booleans."""

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Bool
from .tree_batch import NO_NODE
from .tree_checks import as_parents

__all__ = ["visibility"]


def visibility(parent_BN: ArrayLike, node_count_B: ArrayLike) -> Bool:
    """Tell which slots each slot may attend to: its ancestors and itself.

        visible[i] = visible[parent[i]] with visible[i, i] set

    Parameters
    ----------
    parent_BN : int, shape (B, N)
        Slot of each slot's parent, before it; -1 at the root, slot 0. Padded slots are not read.
    node_count_B : int, shape (B,)
        Real slots of each tree, 1..N.

    Returns
    -------
    visible_BNN : bool, shape (B, N, N)
        True at [b, i, j] if j is i or an ancestor of i. Rows and columns of padded slots are False.

    Raises
    ------
    ShapeError
        A shape or dtype does not fit the argument's name.
    TreeError
        A node count or a parent is out of range, or a parent does not precede its child.

    Cost
    ----
    O(B N**2) time and memory.

    Invariants
    ----------
    - it is the reflexive transitive closure of parent (test_a_node_sees_exactly_its_ancestors_and_itself)
    - the packed and the interval form say the same (test_the_three_forms_of_visibility_agree)
    - a padded slot neither sees nor is seen (test_a_padded_slot_neither_sees_nor_is_seen)

    Examples
    --------
    >>> visibility([[-1, 0, 0, 1]], [4])[0].astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 0, 1, 0],
           [1, 1, 0, 1]])
    """
    parents, counts = as_parents(parent_BN, node_count_B)
    B, N = parents.shape
    visible_BNN = np.zeros((B, N, N), np.bool_)
    for b in range(B):
        for i in range(counts[b]):
            if parents[b, i] != NO_NODE:
                visible_BNN[b, i] = visible_BNN[b, parents[b, i]]
            visible_BNN[b, i, i] = True
    return visible_BNN
