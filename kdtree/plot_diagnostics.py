"""Draw what `kdtree.diagnostics` finds on matplotlib axes.

As in `kdtree.plot`, every function takes `ax` or makes a figure, draws, and returns the Axes; none shows, saves or
closes anything. Depths are tokens after the root.
"""

from collections.abc import Mapping
from itertools import cycle, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .diagnostics import AfterSibling, Calibration, Reliability, RoundEnds, Surrogate
from .draw.labels import clip, visible
from .plot import COLOURS
from .plot_cells import (
    GREY,
    axes,
    budget_axis,
    cells,
    depth_axis,
    depth_cells,
    font_check,
    frame,
    gradient,
    key,
    short,
    write,
)
from .trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "accept_lens",
    "after_sibling",
    "calibration",
    "hit_rates",
    "marginals",
    "reliability",
    "round_ends",
    "surrogate",
]

BEST = 8  # ranks that a heat map shows
FEW = 20  # a share of fewer than these is left out: it is mostly chance


def marginals(trace: Trace, sequence: int, anchor: int, ax: "Axes | None" = None) -> "Axes":
    """Draw a drafter's best tokens at one anchor, with the target's own tokens framed.

    A cell's colour is its stated probability. A target's token below the best ranks stands in the last row, with its
    rank, or - if the row does not list it.

    Returns
    -------
    Axes
        x is the depth with the target's token below it, y the rank.

    Raises
    ------
    IndexError
        The trace has no such sequence, or the anchor's whole view is not recorded.
    """
    L, shown = trace.draft_len, min(trace.K, BEST)
    if not 0 <= sequence < len(trace.topk_ids):
        raise IndexError(f"sequence: got {sequence}, needs 0 to {len(trace.topk_ids) - 1}")
    if not 0 <= anchor < trace.anchor_count[sequence] - L:
        raise IndexError(f"anchor: got {anchor}, needs 0 to {trace.anchor_count[sequence] - L - 1}")
    prob_LK = np.exp(trace.topk_log_probs[sequence, anchor].astype(np.float64))
    target_L = trace.continuation[sequence, anchor + 1 : anchor + 1 + L]
    ax = cells(ax, L, shown + 1)
    can_show = font_check()

    def name(token: int) -> str:
        return clip(visible(trace.label(token), can_show), 5)

    image = ax.imshow(prob_LK[:, :shown].T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for d, token_K in enumerate(trace.topk_ids[sequence, anchor]):
        listed = int((prob_LK[d] > 0).sum())
        for r, token in enumerate(token_K[: min(shown, listed)].tolist()):
            write(ax, d, r, name(token), dark=prob_LK[d, r] > 0.7)
        places = np.flatnonzero(token_K[:listed] == target_L[d])
        rank = int(places[0]) if len(places) else trace.K
        if rank >= shown:
            write(ax, d, shown, f"{name(int(target_L[d]))} {rank if rank < trace.K else '-'}", dark=False)
        frame(ax, d, min(rank, shown))
    ax.set_xticks(range(L), [f"{d + 1}\n{name(token)}" for d, token in enumerate(target_L.tolist())])
    ax.set_yticks(range(shown + 1), [*map(str, range(shown)), "lower"])
    ax.set(ylim=(shown + 0.5, -0.5), xlabel="depth, and the token that the target wrote there", ylabel="rank")
    key(ax, image, "stated probability")
    return ax


def calibration(found: Calibration, ax: "Axes | None" = None) -> "Axes":
    """Draw stated above measured probability, in percent, of the best ranks at each depth.

    Returns
    -------
    Axes
        x is the depth, y the rank; red cells are right less often than stated, blue ones more often.
    """
    shown = min(found.stated_LK.shape[1], BEST)
    stated_KL, measured_KL = 100 * found.stated_LK[:, :shown].T, 100 * found.measured_LK[:, :shown].T
    ax = cells(ax, stated_KL.shape[1], shown)
    image = ax.imshow(measured_KL - stated_KL, cmap="RdBu", vmin=-25, vmax=25, aspect="auto")
    for r, d in np.argwhere(~np.isnan(stated_KL)).tolist():
        stated, measured = float(stated_KL[r, d]), float(measured_KL[r, d])
        write(ax, d, r, f"{short(stated)}\n{short(measured)}", dark=abs(measured - stated) > 17)
    depth_cells(ax, stated_KL.shape[1])
    ax.set_yticks(range(shown))
    ax.set_ylabel("rank")
    key(ax, image, "measured - stated (points)")
    return ax


def reliability(found: Reliability, ax: "Axes | None" = None) -> "Axes":
    """Draw measured against stated probability, a line a depth; bins of fewer than 20 candidates are left out.

    Returns
    -------
    Axes
        x is the mean stated probability of a bin, y the share of its candidates that are the target's token; below the
        diagonal the drafter is too sure.
    """
    ax = axes(ax)
    L = len(found.stated_LG)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    for d, colour in enumerate(gradient(L)):
        many_G = found.count_LG[d] >= FEW
        name = f"depth {d + 1}" if d in {0, L // 2, L - 1} else None
        x, y = found.stated_LG[d][many_G], found.measured_LG[d][many_G]
        ax.plot(x, y, "o-", color=colour, markersize=3, linewidth=1.2, label=name)
    ax.set(xlabel="stated probability (mean of a bin)", ylabel="measured probability", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, loc="upper left")
    return ax


def hit_rates(within_LK: NDArray[np.float64], ax: "Axes | None" = None) -> "Axes":
    """Draw how often the target's token is among the best 1, 2, 4, ... K, against depth.

    Returns
    -------
    Axes
        x is the depth, y the share of anchors, a line a number of ranks.
    """
    ax = axes(ax)
    L, K = within_LK.shape
    powers = sorted({*(2**e for e in range(K.bit_length())), K}, reverse=True)
    for k, colour in zip(powers, gradient(len(powers)), strict=True):
        ax.plot(range(1, L + 1), within_LK[:, k - 1], "o-", color=colour, markersize=3, label=f"best {k}")
    depth_axis(ax, L)
    ax.set(ylabel="target's token is among them\n(share of anchors)", ylim=(0, 1.02))
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def after_sibling(found: AfterSibling, ax: "Axes | None" = None) -> "Axes":
    """Draw how often the first choice is right, stated and measured, on the spine and after a sibling.

    Depths with fewer than 20 anchors are left out.

    Returns
    -------
    Axes
        x is the depth, y the probability; solid lines are measured, dashed ones stated.
    """
    ax = axes(ax)
    depth_L = np.arange(1, len(found.spine.count_L) + 1)
    for name, part, colour in zip(("on the spine", "after a sibling"), found, COLOURS, strict=False):
        many_L = part.count_L >= FEW
        for kind, value_L, style in (("stated", part.stated_L, "o--"), ("right", part.right_L, "s-")):
            label = f"{name}: {kind}"
            ax.plot(depth_L[many_L], value_L[many_L], style, color=colour, markersize=4, label=label)
    depth_axis(ax, len(depth_L))
    ax.set(ylabel="probability of the first choice", ylim=(0, 1.02))
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def round_ends(ends: RoundEnds, ax: "Axes | None" = None) -> "Axes":
    """Draw how many rounds end at each depth and rank of the token that their tree lacks.

    Returns
    -------
    Axes
        x is the depth of the missed token, y its rank in doubling bins; rounds that took all L depths are not drawn.
    """
    L, K = ends.draft_len, ends.K
    edges = [0, *(2**e for e in range((K - 1).bit_length())), K, K + 1]
    names = [str(a) if b - a == 1 else f"{a} to {b - 1}" for a, b in pairwise(edges[:-1])]
    early_R = ends.missed_rank_R >= 0
    places = ends.missed_rank_R[early_R], ends.accept_len_R[early_R]
    table = np.histogram2d(*places, [edges, np.arange(1, L + 2)])[0].astype(int)
    ax = cells(ax, L, len(table))
    ax.imshow(table, cmap="Blues", vmin=0, vmax=max(1, table.max()), aspect="auto")
    for (r, d), number in np.ndenumerate(table):
        if number:
            write(ax, d, r, str(number), dark=number > 0.6 * table.max())
    depth_cells(ax, L)
    ax.set_yticks(range(len(table)), [*names, "not listed"])
    ax.set(xlabel="depth of the missed token", ylabel="its rank")
    ax.set_title(f"{early_R.sum()} of {len(early_R)} rounds end before depth {L}", fontsize=10)
    return ax


def accept_lens(ends: Mapping[str, RoundEnds], ax: "Axes | None" = None) -> "Axes":
    """Draw the share of rounds of each accepted length, bars beside each other for each name.

    Returns
    -------
    Axes
        x is the accepted length in tokens, the bonus included, y percent of rounds.

    Raises
    ------
    ValueError
        There is nothing to draw.
    """
    _check("ends", ends)
    ax = axes(ax)
    most, width = max(rounds.draft_len for rounds in ends.values()) + 1, 0.8 / len(ends)
    for i, ((name, rounds), colour) in enumerate(zip(ends.items(), cycle(COLOURS), strict=False)):
        percent = 100 * np.bincount(rounds.accept_len_R, minlength=most + 1)[1:] / len(rounds.accept_len_R)
        ax.bar(np.arange(1, most + 1) + (i + 0.5) * width - 0.4, percent, width, color=colour, label=name)
    ax.set(xlabel="accept length of a round (tokens)", ylabel="rounds (%)", xticks=range(1, most + 1))
    ax.legend(frameon=False)
    return ax


def surrogate(found: Mapping[str, Surrogate], ax: "Axes | None" = None) -> "Axes":
    """Draw what trees promise, dashed, and what they bring, solid, against node budget.

    Returns
    -------
    Axes
        x is the budget on a log2 scale, y tokens per round.

    Raises
    ------
    ValueError
        There is nothing to draw.
    """
    _check("found", found)
    ax = axes(ax)
    for (name, result), colour in zip(found.items(), cycle(COLOURS), strict=False):
        order = np.argsort(result.budget_G)
        for kind, value_G, style in (("promised", result.expected_G, "o--"), ("achieved", result.achieved_G, "s-")):
            label = f"{name}: {kind}"
            ax.plot(result.budget_G[order], value_G[order], style, color=colour, markersize=4, label=label)
    budget_axis(ax, sorted({int(budget) for result in found.values() for budget in result.budget_G}))
    ax.set(xlabel="node budget (drafted nodes verified per round)", ylabel="accept length (tokens per round)")
    ax.legend(frameon=False)
    return ax


def _check(argument: str, named: Mapping[str, object]) -> None:
    if not named:
        raise ValueError(f"{argument}: got nothing to draw, needs 1 or more")
