"""Draw on matplotlib axes: a draft tree, and accept length against node budget.

Every function takes `ax` or makes a figure, draws, and returns the Axes; none shows, saves or closes anything.
"""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from .draw.labels import cells, clip
from .draw.look import ACCEPTED, INK, PAPER, PLAIN, edge_width, percent, shade
from .draw.picture import Picture, picture
from .plot_cells import budget_axis, font_check
from .tree import DraftTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "AcceptLengths", "accept_curve", "tree"]

LETTER, LARGEST = 9.0, 100.0  # points: of a label; inches: of a figure's side
POINTS = 72  # an inch
ROW = 1.8  # letter sizes from row to row
CELL = 0.65  # letter sizes a column of a label
LONGEST, SHORT = 12, 4  # columns of a label: at most, and never cut to fewer
# Okabe and Ito's colours without the yellow, which is too light for lines on paper
COLOURS = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"
STYLES, MARKERS = ("-", "--", "-.", ":"), "osD^vPX"
FEW = 12  # budgets; a curve of more has no markers


class AcceptLengths(Protocol):
    """What a replay measured, by node budget."""

    @property
    def tau(self) -> Mapping[int, float]:
        """Return tokens per round, pooled over rounds."""

    @property
    def tau_interval(self) -> Mapping[int, tuple[float, float]]:
        """Return the ends of the 95% bootstrap interval of `tau`."""


def tree(
    tree: DraftTree, ax: "Axes | None" = None, *, label: Callable[[int], str] = str, path: ArrayLike = ()
) -> "Axes":
    """Draw a tree as `kdtree.draw.svg` does: depth to the right, a row a leaf, no edge across another.

    Parameters
    ----------
    tree : DraftTree
        The tree; weights may be unknown (no probability is written, edges are dotted) or -inf.
    ax : Axes, optional
        Where to draw; letters shrink until rows and columns fit. If not given, a new figure that fits the tree.
    label : callable
        From a token to what is written for it. What the font lacks is escaped; long labels are cut.
    path : int, shape (any,)
        Accepted slots; -1 is padding, so a row of `path_BN` fits.

    Returns
    -------
    Axes
        x is the depth in tokens after the root, y the row.

    Raises
    ------
    IndexError
        `path` names a slot that the tree does not have.
    ShapeError
        `path` is not one row of integers.
    """
    from matplotlib import pyplot as plt

    shown = picture(tree, label, path, font_check())
    steps, rows = int(tree.depth_N.max()) + 1, shown.row_count
    if ax is None:
        wide, high = steps * _column(min(max(map(cells, shown.label_N)), LONGEST)), ROW * rows
        inches = np.array([wide, high]) * LETTER / POINTS + np.array([0.2, 0.8])
        ax = plt.subplots(figsize=np.clip(inches, [3, 1], LARGEST), layout="constrained")[1]
    _draw_frame(ax, steps, rows, legend=bool(shown.accepted_N.any()))
    _draw_edges(tree, shown, ax)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # lays out, so that the size of the axes is known
    _draw_nodes(tree, shown, ax, *_fit(ax, steps, rows, shown.label_N))
    return ax


def _column(cells: float) -> float:
    """Return the width of a step in depth, in letter sizes: label, margins, probability, some edge."""
    return CELL * cells + 5.5


def _fit(ax: "Axes", steps: int, rows: int, labels: list[str]) -> tuple[float, int]:
    """Return the letter size in points and the longest label in columns with which a tree fits the axes."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    width, height = np.array(ax.get_window_extent().size) / figure.dpi * POINTS
    widest = min(max(map(cells, labels)), LONGEST)
    size = min(LETTER, height / (ROW * rows), width / steps / _column(min(widest, SHORT)))
    size = max(size, 1.0)
    return size, max(SHORT, min(LONGEST, int((width / steps / size - _column(0)) / CELL)))


def _draw_frame(ax: "Axes", steps: int, rows: int, legend: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set(xlim=(-0.5, steps - 0.5), ylim=(rows - 0.5, -0.5), xlabel="depth (tokens after the root)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_yticks([])
    ax.spines[["left", "right", "top"]].set_visible(False)
    if legend:
        mark = ax.plot([], [], color=ACCEPTED, linewidth=2, marker="s", markerfacecolor="none", label="accepted path")
        ax.legend(handles=mark, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)


def _draw_edges(tree: DraftTree, shown: Picture, ax: "Axes") -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgba
    from matplotlib.path import Path

    slots = np.array(sorted(range(1, tree.node_count), key=shown.accepted_N.__getitem__), np.int64)  # accepted on top
    above = tree.parent_N[slots]
    accepted = shown.accepted_N[slots] & shown.accepted_N[above]
    path_probs = shown.path_prob_N[slots]
    curves = [
        Path([(x - 1, y0), (x - 0.5, y0), (x - 0.5, y1), (x, y1)], [Path.MOVETO, *3 * [Path.CURVE4]])
        for x, y0, y1 in zip(tree.depth_N[slots], shown.row_N[above], shown.row_N[slots], strict=True)
    ]
    edges = PathCollection(
        curves,
        facecolors="none",
        edgecolors=[to_rgba(ACCEPTED) if taken else to_rgba(PLAIN, 0.7) for taken in accepted],
        linewidths=[edge_width(p, taken) for p, taken in zip(path_probs, accepted, strict=True)],
        linestyles=[":" if np.isnan(p) else "-" for p in path_probs],
        zorder=1,
    )
    edges.set_transform(ax.transData)
    ax.add_collection(edges, autolim=False)


def _draw_nodes(tree: DraftTree, shown: Picture, ax: "Axes", size: float, longest: int) -> None:
    from matplotlib.colors import to_rgb

    for i, name in enumerate(shown.label_N):
        accepted = bool(shown.accepted_N[i])
        colour, alpha = ACCEPTED if accepted else PLAIN, shade(shown.path_prob_N[i])
        fill = alpha * np.array(to_rgb(colour)) + (1 - alpha) * np.array(to_rgb(PAPER))
        text = ax.text(
            tree.depth_N[i],
            shown.row_N[i],
            clip(name, longest),
            size=size,
            color=INK,
            weight="bold" if accepted else "normal",
            bbox={"boxstyle": "round,pad=0.25", "fc": fill, "ec": colour, "lw": 2 if accepted else 0.6},
            ha="center",
            va="center",
            parse_math=False,
            usetex=False,
        )
        ax.annotate(
            percent(shown.prob_N[i]),
            xy=(1, 0.5),
            xycoords=text,
            xytext=(0.25 * size + 2, 0),
            textcoords="offset points",
            size=0.7 * size,
            bbox={"boxstyle": "square,pad=0.1", "fc": ax.get_facecolor(), "ec": "none"},
            va="center",
            usetex=False,
        )


def accept_curve(results: Mapping[str, AcceptLengths], ax: "Axes | None" = None) -> "Axes":
    """Draw accept length against node budget, a line a builder with its 95% bootstrap interval.

    Parameters
    ----------
    results : mapping
        From a builder's name to its accept lengths, such as a `ReplayResult`; builders may differ in budgets.
    ax : Axes, optional
        Where to draw; a new figure if not given.

    Returns
    -------
    Axes
        x is the budget on a log2 scale (linear from 0 to 1, so that budget 0 has a place); y is tokens per round, from
        1, what a round without a draft yields. The legend is in the order of the lines' right ends.

    Raises
    ------
    ValueError
        There is no builder, a builder has no budget, a budget is negative, or a budget lacks its interval.
    """
    from matplotlib import pyplot as plt

    _check(results)
    if ax is None:
        ax = plt.subplots(layout="constrained")[1]
    budgets = sorted({budget for result in results.values() for budget in result.tau})
    looks = zip(cycle(COLOURS), cycle(STYLES), cycle(MARKERS), strict=False)
    lines = {}
    for (name, result), (colour, style, marker) in zip(results.items(), looks, strict=False):
        own = sorted(result.tau)
        tau = [result.tau[budget] for budget in own]
        low, high = np.transpose([result.tau_interval[budget] for budget in own])
        if len(own) == 1:
            ax.vlines(own, low, high, color=colour, alpha=0.5)
        else:
            ax.fill_between(own, low, high, color=colour, alpha=0.18, linewidth=0)
        few = marker if len(own) <= FEW else ""
        (lines[name],) = ax.plot(own, tau, color=colour, linestyle=style, marker=few, markersize=4.5)
    ax.set(xlabel="node budget (drafted nodes verified per round)", ylabel="accept length (tokens per round)")
    budget_axis(ax, budgets)
    ax.update_datalim([(budgets[0], 1.0)])
    ax.autoscale_view()
    ranking = sorted(results, key=lambda name: -results[name].tau[max(results[name].tau)])
    ax.legend([lines[name] for name in ranking], ranking, frameon=False)
    return ax


def _check(results: Mapping[str, AcceptLengths]) -> None:
    if not results:
        raise ValueError("results: got no builder, needs 1 or more")
    for name, result in results.items():
        if not result.tau:
            raise ValueError(f"results[{name!r}].tau: got no budget, needs 1 or more")
        for budget in result.tau:
            if budget < 0:
                raise ValueError(f"results[{name!r}].tau: got budget {budget}, needs 0 or more")
            if budget not in result.tau_interval:
                raise ValueError(f"results[{name!r}].tau_interval: got nothing for budget {budget}, needs its interval")
