"""What every drawing of a tree shares: where each slot goes, what is written there, and which slots were accepted."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kdtree.reference.arrays import Bool, Index, integers
from kdtree.reference.errors import ShapeError
from kdtree.reference.visibility_intervals import visibility_intervals

from .labels import visible

if TYPE_CHECKING:
    from kdtree.tree import DraftTree

__all__ = ["Picture", "picture", "place"]


class Picture(NamedTuple):
    """A tree that is ready to draw; depth grows to the right and rows grow downwards."""

    label_N: list[str]  #: what to write at the slot, on one line
    prob_N: NDArray[np.float64]  #: probability of the slot's token given its parent's path; NaN if unknown
    path_prob_N: NDArray[np.float64]  #: probability of the whole path from the root; NaN if unknown
    accepted_N: Bool  #: the slot is on the accepted path
    preorder_N: Index  #: slots in the order of a walk that visits a node, then its children in slot order
    row_N: NDArray[np.float64]  #: vertical place: leaves take rows 0, 1, 2, ... and a parent the middle of its children
    row_count: int  #: leaves


def picture(
    tree: "DraftTree", label: Callable[[int], str], path: ArrayLike, can_show: Callable[[str], bool] = lambda c: True
) -> Picture:
    """Place, label and mark the slots of a tree; `can_show` tells whether the font has a character."""
    logw_N, above_N = tree.logw_N, tree.logw_N[np.maximum(tree.parent_N, 0)]
    with np.errstate(invalid="ignore", over="ignore"):
        prob_N, path_prob_N = np.exp(logw_N - above_N), np.exp(logw_N)
    prob_N[0] = np.nan  # the root is given, not drafted
    preorder_N, row_N, row_count = place(tree.parent_N)
    label_N = [visible(_string(label, token), can_show) for token in tree.token_N.tolist()]
    return Picture(label_N, prob_N, path_prob_N, _accepted(tree, path), preorder_N, row_N, row_count)


def place(parent_N: Index) -> tuple[Index, NDArray[np.float64], int]:
    """Return the preorder of a tree, the row of each slot and the count of rows, without recursion.

    The leaves below a node take consecutive rows, so neither edges nor boxes of different subtrees meet.

    Examples
    --------
    >>> preorder_N, row_N, row_count = place(np.array([-1, 0, 0, 1, 1]))
    >>> preorder_N.tolist(), row_N.tolist(), row_count
    ([0, 1, 3, 4, 2], [1.25, 0.5, 2.0, 0.0, 1.0], 3)
    """
    N, parent = len(parent_N), parent_N.tolist()
    (pre_N,), (size_N,) = visibility_intervals(parent_N[None], [N])
    preorder_N = np.argsort(pre_N).astype(np.int32)
    leaf_N = size_N == 1
    top_N = np.zeros(N)
    top_N[preorder_N] = np.cumsum(leaf_N[preorder_N]) - leaf_N[preorder_N]
    row, bottom = top_N.tolist(), [-1.0] * N
    for i in range(N - 1, 0, -1):  # children come last to first: the first one seen is the lowest
        if bottom[parent[i]] < 0:
            bottom[parent[i]] = row[i]
        row[parent[i]] = (row[i] + bottom[parent[i]]) / 2
    return preorder_N, np.array(row), int(leaf_N.sum())


def _string(label: Callable[[int], str], token: int) -> str:
    text = label(token)
    if not isinstance(text, str):
        raise TypeError(f"label: got {text!r} for token {token}, needs a str")
    return text


def _accepted(tree: "DraftTree", path: ArrayLike) -> Bool:
    """Return which slots `path` names; -1 is padding."""
    given = np.asarray(path)
    slots = integers("path", given if given.size else given.astype(np.int32))
    if slots.ndim != 1:
        raise ShapeError(f"path: got shape {slots.shape}, needs one row of slots")
    for slot in slots[(slots < -1) | (slots >= tree.node_count)]:
        raise IndexError(f"path: got slot {slot}, needs 0 to {tree.node_count - 1}, or -1 for padding")
    accepted_N = np.zeros(tree.node_count, np.bool_)
    accepted_N[slots[slots >= 0]] = True
    return accepted_N
