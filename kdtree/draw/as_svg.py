"""A draft tree as an SVG document, alone or in a scrollable piece of HTML."""

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .labels import cells, clip
from .look import ACCEPTED, FAINT, INK, PAPER, PLAIN, edge_width, number, percent, shade
from .picture import Picture, picture

if TYPE_CHECKING:
    from kdtree.tree import DraftTree

__all__ = ["html", "svg"]

FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
ROW, BOX, PAD, GAP, MARGIN, HEAD = 24, 18, 5, 44, 14, 22  # pixels
LABEL_CELL, PERCENT_CELL = 7.25, 5.5  # pixels a column, at font sizes 12 and 9
LONGEST = 18  # columns of a label; the rest is in the tooltip


class Box(NamedTuple):
    """The outline of a slot, in pixels."""

    left: float
    middle: float
    width: float


def svg(tree: "DraftTree", label: Callable[[int], str] = str, path: ArrayLike = ()) -> str:
    """Draw a tree as an SVG document: depth to the right, a row a leaf, no edge across another.

    A box shows the token and its probability given its parent's path. The more probable the whole path, the darker
    its box and the wider its edge; an edge of unknown probability is dashed. Accepted slots are vermilion with a thick
    outline and a bold label. Pointing at a box shows all that is known of its slot. The document needs no font,
    script or style from elsewhere and brings its own background.

    Parameters
    ----------
    tree : DraftTree
        The tree; weights may be unknown or -inf.
    label : callable
        From a token to what is written for it; `kdtree.draw.labels.visible` says how spaces and characters that
        cannot be printed are shown. Long labels are cut in the box, not in the tooltip.
    path : int, shape (any,)
        Accepted slots; -1 is padding, so a row of `path_BN` fits.

    Raises
    ------
    IndexError
        `path` names a slot that the tree does not have.
    ShapeError
        `path` is not one row of integers.

    Examples
    --------
    >>> from kdtree.tree import DraftTree
    >>> svg(DraftTree.from_parents([-1, 0, 0]), path=[0, 2]).count("<rect")  # the paper and three boxes
    4
    """
    shown = picture(tree, label, path)
    names = [clip(name, LONGEST) for name in shown.label_N]
    depth_N = tree.depth_N.tolist()
    widths = [_box_width(name, percent(p)) for name, p in zip(names, shown.prob_N.tolist(), strict=True)]
    lefts = [MARGIN + (max(widths) + GAP) * d for d in range(max(depth_N) + 1)]
    boxes = [
        Box(lefts[d], MARGIN + HEAD + ROW * (row + 0.5), w)
        for d, row, w in zip(depth_N, shown.row_N.tolist(), widths, strict=True)
    ]
    width = max(box.left + box.width for box in boxes) + MARGIN
    height = 2 * MARGIN + HEAD + ROW * shown.row_count
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="{FONT}" font-size="12">',
            f"<title>draft tree of {tree.budget} nodes</title>",
            f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>',
            *(_text(left, MARGIN + 9, f"{'' if d else 'depth '}{d}", FAINT, 11) for d, left in enumerate(lefts)),
            *_edges(tree, shown, boxes),
            *(_node(tree, shown, i, names[i], box) for i, box in enumerate(boxes)),
            "</svg>",
        ]
    )


def html(tree: "DraftTree", label: Callable[[int], str] = str, path: ArrayLike = ()) -> str:
    """Draw a tree as `svg` does, in a scrollable box below one line that sums it up.

    Parameters and errors are those of `svg`.
    """
    nodes = "1 node" if tree.budget == 1 else f"{tree.budget} nodes"
    length = tree.expected_accept_len
    gain = "weights unknown" if np.isnan(length) else f"expected accept length {length:.2f} tokens"
    return (
        f"<div><div>Draft tree: {nodes}, depth {tree.depth_N.max()}, {gain}</div>\n"
        f'<div style="overflow: auto; max-height: 40em">\n{svg(tree, label, path)}\n</div></div>'
    )


def _box_width(name: str, chance: str) -> float:
    return PAD + LABEL_CELL * cells(name) + (PAD + PERCENT_CELL * len(chance) if chance else 0) + PAD


def _edges(tree: "DraftTree", shown: Picture, boxes: list[Box]) -> list[str]:
    """Return the curves from parents to children, those of the accepted path last and so on top."""
    curves = []
    for i in sorted(range(1, tree.node_count), key=shown.accepted_N.__getitem__):
        parent, path_prob = int(tree.parent_N[i]), float(shown.path_prob_N[i])
        accepted = bool(shown.accepted_N[i] and shown.accepted_N[parent])
        start, end = boxes[parent].left + boxes[parent].width, boxes[i].left
        bend, y0, y1 = (start + end) / 2, boxes[parent].middle, boxes[i].middle
        dash = ' stroke-dasharray="3 2"' if np.isnan(path_prob) else ""
        curves.append(
            f'<path d="M{start:.1f} {y0:.1f}C{bend:.1f} {y0:.1f} {bend:.1f} {y1:.1f} {end:.1f} {y1:.1f}" fill="none" '
            f'stroke="{ACCEPTED if accepted else PLAIN}" stroke-opacity="{1 if accepted else 0.6}" '
            f'stroke-width="{edge_width(path_prob, accepted):.1f}"{dash}/>'
        )
    return curves


def _node(tree: "DraftTree", shown: Picture, i: int, name: str, box: Box) -> str:
    accepted, prob, path_prob = bool(shown.accepted_N[i]), float(shown.prob_N[i]), float(shown.path_prob_N[i])
    colour = ACCEPTED if accepted else PLAIN
    right, top = box.left + box.width - PAD, box.middle - BOX / 2
    return "".join(
        [
            f"<g><title>{escape(_facts(tree, shown, i))}</title>",
            f'<rect x="{box.left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{BOX}" rx="4" ',
            f'fill="{colour}" fill-opacity="{shade(path_prob):.2f}" ',
            f'stroke="{colour}" stroke-width="{2.5 if accepted else 0.8}"/>',
            _text(box.left + PAD, box.middle + 4, name, INK, 12, ' font-weight="bold"' if accepted else ""),
            _text(right, box.middle + 3.5, percent(prob), FAINT, 9, ' text-anchor="end"'),
            "</g>",
        ]
    )


def _facts(tree: "DraftTree", shown: Picture, i: int) -> str:
    facts = [f"slot {i}, token {tree.token_N[i]}: {shown.label_N[i]}"]
    facts += [f"depth {tree.depth_N[i]}, rank {tree.rank_N[i]}"] if i else ["depth 0, root"]
    facts += [f"p given the parent: {number(shown.prob_N[i])}"] if i else []
    facts += [f"p of the path: {number(shown.path_prob_N[i])}"]
    facts += ["accepted"] if shown.accepted_N[i] else []
    return "\n".join(facts)


def _text(x: float, y: float, content: str, colour: str, size: int, style: str = "") -> str:
    if not content:
        return ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}"{style}>{escape(content)}</text>'
