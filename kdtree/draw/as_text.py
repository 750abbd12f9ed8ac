"""A draft tree as lines of text."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from .look import number
from .picture import picture

if TYPE_CHECKING:
    from kdtree.tree import DraftTree

__all__ = ["text"]


def text(tree: "DraftTree", label: Callable[[int], str] = str, path: ArrayLike = ()) -> str:
    r"""Draw a tree with lines of text: a heading, then a line a slot, children below their parent in slot order.

    The columns stand before the tree, so no label, however wide, can put them out of line.

    Parameters
    ----------
    tree : DraftTree
        The tree; weights may be unknown (shown as ?) or -inf (shown as 0).
    label : callable
        From a token to what is written for it, such as a tokenizer's decode; see `kdtree.draw.labels.visible` for
        how spaces and characters that cannot be printed are shown.
    path : int, shape (any,)
        Accepted slots, marked with ✓; -1 is padding, so a row of `path_BN` fits.

    Returns
    -------
    str
        Columns: slot; p, the probability of the token given its parent's path; path p, that of the whole path; the
        tree. No newline at the end.

    Raises
    ------
    IndexError
        `path` names a slot that the tree does not have.
    ShapeError
        `path` is not one row of integers.

    Examples
    --------
    >>> from kdtree.tree import DraftTree
    >>> tree = DraftTree.from_parents([-1, 0, 0, 1], token_N=[10, 97, 32, 98], prob_N=[1, 0.6, 0.4, 0.9])
    >>> print(text(tree, chr, path=[0, 1]))
    slot         p  path p
       0 ✓           1.000  \n
       1 ✓   0.600   0.600  ├─ a
       3     0.900   0.540  │  └─ b
       2     0.400   0.400  └─ ␣
    """
    shown = picture(tree, label, path)
    slots = [str(i) for i in range(tree.node_count)]
    probs = ["", *(number(p) for p in shown.prob_N[1:].tolist())]
    path_probs = [number(p) for p in shown.path_prob_N.tolist()]
    width = max(4, *map(len, slots)), max(7, *map(len, probs)), max(6, *map(len, path_probs))
    lines = [f"{'slot':>{width[0]}}   {'p':>{width[1]}}  {'path p':>{width[2]}}"]
    for i, stem in zip(shown.preorder_N.tolist(), _stems(tree, shown.preorder_N.tolist()), strict=True):
        mark = "✓" if shown.accepted_N[i] else " "
        columns = f"{slots[i]:>{width[0]}} {mark} {probs[i]:>{width[1]}}  {path_probs[i]:>{width[2]}}"
        lines.append(f"{columns}  {stem}{shown.label_N[i]}")
    return "\n".join(lines)


def _stems(tree: "DraftTree", preorder: list[int]) -> list[str]:
    """Return what stands before each label, in preorder: the lines that lead from the parents."""
    parent = tree.parent_N.tolist()
    last_child = {parent[i]: i for i in range(1, tree.node_count)}
    indent, stems = {0: ""}, [""]
    for i in preorder[1:]:
        is_last = last_child[parent[i]] == i
        stems.append(indent[parent[i]] + ("└─ " if is_last else "├─ "))
        indent[i] = indent[parent[i]] + ("   " if is_last else "│  ")
    return stems
