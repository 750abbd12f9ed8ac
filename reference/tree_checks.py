"""What makes arrays a tree: the checks that every op which reads one makes first."""

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Bool, Index, integers, sizes
from .errors import ShapeError, TreeError
from .tree_batch import NO_NODE, ROOT

__all__ = ["as_parents", "check_links", "check_parents", "check_room", "real_slots"]


def as_parents(parent_BN: ArrayLike, node_count_B: ArrayLike) -> tuple[Index, Index]:
    """Convert and check the arrays that describe trees by their parents.

    Raises
    ------
    ShapeError
        A shape or dtype does not fit the argument's name.
    TreeError
        See `check_parents`.
    """
    parents, counts = integers("parent_BN", parent_BN), integers("node_count_B", node_count_B)
    sizes(parent_BN=parents, node_count_B=counts)
    check_parents(parents, counts)
    return parents, counts


def check_parents(parent_BN: Index, node_count_B: Index) -> None:
    """Raise TreeError unless slot 0 is the root and every other real slot's parent comes before it.

    That suffices for a tree: following parents strictly descends to slot 0. Padded slots are not read.
    """
    N = parent_BN.shape[1]
    real_BN = real_slots(node_count_B, N)
    right_BN = (parent_BN >= ROOT) & (parent_BN < np.arange(N))
    right_BN[:, :1] = parent_BN[:, :1] == NO_NODE
    for b, i in np.argwhere(real_BN & ~right_BN):
        needs = "-1, for slot 0 is the root" if i == ROOT else f"a slot from 0 to {i - 1}"
        raise TreeError(f"parent_BN: got {parent_BN[b, i]} at batch row {b}, slot {i}; needs {needs}")


def check_links(first_child_BN: Index, next_sibling_BN: Index, node_count_B: Index) -> None:
    """Raise TreeError unless the links lead from the root to every other real slot exactly once.

    Every link must lead to a later real slot and every slot but the root must be led to once; then a walk ends within
    N steps and each slot has one parent. Padded slots are not read.
    """
    B, N = first_child_BN.shape
    real_BN = real_slots(node_count_B, N)
    led_to_BN = np.zeros((B, N), np.int64)
    for name, link_BN in (("first_child_BN", first_child_BN), ("next_sibling_BN", next_sibling_BN)):
        linked_BN = real_BN & (link_BN != NO_NODE)
        wrong_BN = linked_BN & ((link_BN <= np.arange(N)) | (link_BN >= node_count_B[:, None]))
        for b, i in np.argwhere(wrong_BN):
            raise TreeError(
                f"{name}: got {link_BN[b, i]} at batch row {b}, slot {i}; "
                f"needs -1 or a later slot, below node_count = {node_count_B[b]}"
            )
        place = (link_BN + N * np.arange(B)[:, None])[linked_BN]
        led_to_BN += np.bincount(place, minlength=B * N).reshape(B, N)
    for b, _ in np.argwhere(next_sibling_BN[:, :1] != NO_NODE):
        got = next_sibling_BN[b, ROOT]
        raise TreeError(f"next_sibling_BN: got {got} at batch row {b}, slot 0; needs -1, for the root has no sibling")
    led_to_BN[:, :1] += 1  # by nothing in the tree: a link to the root was refused above
    for b, i in np.argwhere(real_BN & (led_to_BN != 1)):
        links = led_to_BN[b, i]
        raise TreeError(f"first_child_BN, next_sibling_BN: {links} links lead to slot {i} of batch row {b}; needs 1")


def real_slots(node_count_B: Index, N: int) -> Bool:
    """Return the mask of real slots, shape (B, N); TreeError unless every tree has 1 to N of them."""
    for b in np.flatnonzero((node_count_B < 1) | (node_count_B > N)):
        raise TreeError(f"node_count_B: got {node_count_B[b]} at batch row {b}, needs 1 to N = {N}")
    return np.arange(N, like=node_count_B) < node_count_B[:, None]


def check_room(name: str, S: int, prefix_len_B: Index, node_count_B: Index) -> None:
    """Raise ShapeError, naming the cache, unless its S rows hold every prefix and the slots behind it."""
    for b, (P, n) in enumerate(zip(prefix_len_B.tolist(), node_count_B.tolist(), strict=True)):
        if not 0 <= P <= S - n:
            raise ShapeError(f"{name}: got {S} rows at batch row {b}, needs prefix_len + node_count = {P} + {n}")
