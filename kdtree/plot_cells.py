"""Axes, cells, fonts and colours that drawings share."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .draw.look import ACCEPTED, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

__all__ = [
    "GREY", "axes", "budget_axis", "cells", "depth_axis", "depth_cells", "font_check", "frame", "gradient", "key",
    "short", "write",
]  # fmt: skip

GREY = "#8c959f"
CELL = 0.55, 0.38  # inches, in a figure of its own
DEPTH = "depth (tokens after the root)"


def axes(ax: "Axes | None") -> "Axes":
    """Return the axes that are given, or those of a new figure."""
    from matplotlib import pyplot as plt

    return plt.subplots(layout="constrained")[1] if ax is None else ax


def cells(ax: "Axes | None", columns: int, rows: int) -> "Axes":
    """Return axes without spines and ticks for a table of cells, in a figure that fits it if none are given."""
    from matplotlib import pyplot as plt

    if ax is None:
        size = max(4.0, CELL[0] * columns + 2), max(2.0, CELL[1] * rows + 1)
        ax = plt.subplots(figsize=size, layout="constrained")[1]
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return ax


def write(ax: "Axes", x: int, y: int, text: str, *, dark: bool) -> None:
    """Write into a cell, in white if the cell is dark."""
    colour = "white" if dark else INK
    ax.text(x, y, text, ha="center", va="center", fontsize=8, color=colour, linespacing=0.95, parse_math=False)


def frame(ax: "Axes", x: int, y: int) -> None:
    """Frame a cell in the colour of what the target accepts."""
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=ACCEPTED, linewidth=2))


def key(ax: "Axes", image: "AxesImage", label: str) -> None:
    """Say beside the axes what the colours of an image mean."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(image, ax=ax, label=label)
    bar.outline.set_visible(False)


def depth_cells(ax: "Axes", L: int) -> None:
    """Label the columns of a table by depth."""
    ax.set_xticks(range(L), [str(d) for d in range(1, L + 1)])
    ax.set_xlabel(DEPTH)


def depth_axis(ax: "Axes", L: int) -> None:
    """Label x by depth, from 1 on, with at most 16 ticks."""
    ax.set(xlabel=DEPTH, xlim=(0.5, L + 0.5), xticks=range(1, L + 1, -(-L // 16)))


def budget_axis(ax: "Axes", budgets: list[int]) -> None:
    """Scale x by log2, from 1 on, with a tick at 0 and at each power of 2 in reach."""
    powers = [2**e for e in range(max(budgets).bit_length()) if budgets[0] <= 2**e]
    ticks = [0, *powers] if budgets[0] == 0 else powers
    ticks = ticks if len(ticks) > 1 else budgets
    ax.set_xscale("symlog", base=2, linthresh=1, linscale=0.5)
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()


def font_check() -> Callable[[str], bool]:
    """Return a function that tells whether the font has a character, bold too."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    fonts = [get_font(findfont(FontProperties(weight=weight))) for weight in ("normal", "bold")]
    return lambda character: all(font.get_char_index(ord(character)) for font in fonts)


def gradient(n: int) -> list[tuple[float, ...]]:
    """Return n colours from dark to light, none too light for a line on paper."""
    from matplotlib import colormaps

    return [tuple(colour) for colour in colormaps["viridis"](np.linspace(0, 0.85, n)).tolist()]


def short(percent: float) -> str:
    """Write a percentage in at most three characters.

    Examples
    --------
    >>> [short(p) for p in (100.0, 61.7, 4.26, 0.04, 0.0)]
    ['100', '62', '4.3', '0.0', '0']
    """
    return f"{percent:.0f}" if percent >= 9.95 or percent == 0 else f"{percent:.1f}"
