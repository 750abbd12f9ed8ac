"""Drawings of diagnostics on matplotlib axes."""

import io

import matplotlib as mpl
import numpy as np
import pytest

from kdtree import Trace, diagnostics
from kdtree import plot_diagnostics as plots

mpl.use("agg")
from matplotlib import pyplot as plt

PILOT = Trace.shipped("pilot_t05")
ENDS = {"chain": diagnostics.round_ends(PILOT, "chain", 7), "tree": diagnostics.round_ends(PILOT, "ddtree", 32)}
DRAWN = {  # name: arguments, label of x, label of y
    "marginals": ((PILOT, 9, 16), "depth, and the token that the target wrote there", "rank"),
    "calibration": ((diagnostics.calibration(PILOT),), "depth (tokens after the root)", "rank"),
    "reliability": (
        (diagnostics.reliability(PILOT),),
        "stated probability (mean of a bin)",
        "measured probability",
    ),
    "hit_rates": (
        (diagnostics.hit_rates(PILOT),),
        "depth (tokens after the root)",
        "target's token is among them\n(share of anchors)",
    ),
    "after_sibling": (
        (diagnostics.after_sibling(PILOT),),
        "depth (tokens after the root)",
        "probability of the first choice",
    ),
    "round_ends": ((ENDS["tree"],), "depth of the missed token", "its rank"),
    "accept_lens": ((ENDS,), "accept length of a round (tokens)", "rounds (%)"),
    "surrogate": (
        ({"tree": diagnostics.surrogate(PILOT, "ddtree", [8, 1])},),
        "node budget (drafted nodes verified per round)",
        "accept length (tokens per round)",
    ),
}


@pytest.fixture(autouse=True)
def no_trace_left(monkeypatch):
    """Fail a test in which something is shown or set for all; close the figures afterwards."""

    def refuse(*args, **kwargs):
        raise AssertionError("a plot function must not do this")

    before = mpl.rcParams.copy()
    with monkeypatch.context() as patch:
        patch.setattr(plt, "show", refuse)
        yield
    assert mpl.rcParams == before
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_every_drawing_is_tested():
    assert sorted(DRAWN) == sorted(plots.__all__)


@pytest.mark.parametrize("name", DRAWN)
def test_the_given_axes_come_back_and_no_figure_is_made(name):
    arguments, x, y = DRAWN[name]
    ax = plt.subplots()[1]
    figures = plt.get_fignums()
    assert getattr(plots, name)(*arguments, ax) is ax
    assert plt.get_fignums() == figures
    assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y)
    ax.figure.savefig(io.BytesIO())


@pytest.mark.parametrize("name", DRAWN)
def test_texts_of_a_figure_of_its_own_do_not_overlap(name):
    ax = getattr(plots, name)(*DRAWN[name][0])
    ax.figure.savefig(io.BytesIO())
    renderer = ax.figure.canvas.get_renderer()
    legend = ax.get_legend().get_texts() if ax.get_legend() else []
    shown = [*ax.texts, *legend, ax.title, ax.xaxis.label, ax.yaxis.label]
    boxes = [text.get_window_extent(renderer) for text in shown if text.get_text()]
    page = ax.figure.bbox
    assert all(page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 and b.y1 <= page.y1 for b in boxes)
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert min(min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)) < 1


def test_the_targets_own_tokens_are_framed_wherever_they_rank():
    ax = plots.marginals(PILOT, 0, 1)
    ranks = diagnostics.target_ranks(PILOT).rank_TL[1]
    framed = [(round(patch.get_x() + 0.46), round(patch.get_y() + 0.46)) for patch in ax.patches]
    assert framed == [(d, min(rank, 8)) for d, rank in enumerate(ranks.tolist())]
    (lower,) = [text for text in ax.texts if text.get_position()[1] == 8][:1]
    assert lower.get_text().endswith(f" {ranks[ranks >= 8][0]}")


def test_a_target_that_no_row_lists_has_a_dash():
    trace = Trace.from_arrays(
        prompt=[[0]],
        continuation=[[0, 1]],
        topk_ids=np.zeros((1, 2, 1, 1), int),
        topk_log_probs=np.zeros((1, 2, 1, 1), np.float32),
    )
    assert texts(plots.marginals(trace, 0, 0)) == ["0", "1 -"]


@pytest.mark.parametrize(("sequence", "anchor", "name"), [(24, 0, "sequence"), (0, 89, "anchor"), (0, -1, "anchor")])
def test_a_place_without_a_whole_view_is_refused_before_anything_is_drawn(sequence, anchor, name):
    with pytest.raises(IndexError, match=f"{name}: got"):
        plots.marginals(PILOT, sequence, anchor)
    assert plt.get_fignums() == []


def test_the_numbers_of_round_ends_add_up():
    ax = plots.round_ends(ENDS["tree"])
    early = int((ENDS["tree"].missed_rank_R >= 0).sum())
    assert sum(map(int, texts(ax))) == early
    assert ax.get_title() == f"{early} of {len(ENDS['tree'].anchor_R)} rounds end before depth 7"
    ranks = [tick.get_text() for tick in ax.get_yticklabels()]
    assert ranks == ["0", "1", "2 to 3", "4 to 7", "8 to 15", "16 to 31", "32 to 63", "not listed"]


@pytest.mark.parametrize("K", [1, 2, 3, 8])
def test_ranks_of_round_ends_reach_to_the_last_recorded_one(K):
    ends = ENDS["chain"]._replace(K=K, missed_rank_R=np.minimum(ENDS["chain"].missed_rank_R, K))
    names = [tick.get_text() for tick in plots.round_ends(ends).get_yticklabels()]
    assert (
        names
        == {
            1: ["0", "not listed"],
            2: ["0", "1", "not listed"],
            3: ["0", "1", "2", "not listed"],
            8: ["0", "1", "2 to 3", "4 to 7", "not listed"],
        }[K]
    )


def test_the_bars_of_accept_lengths_add_up_to_all_rounds():
    ax = plots.accept_lens(ENDS)
    for bars in ax.containers:
        assert sum(bar.get_height() for bar in bars) == pytest.approx(100)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["chain", "tree"]


def test_shares_of_a_few_anchors_are_left_out():
    found = diagnostics.after_sibling(PILOT)
    few = found._replace(sibling=found.sibling._replace(count_L=np.array([0, 19, 20, 21, 0, 0, 0])))
    drawn = [line.get_xdata().tolist() for line in plots.after_sibling(few).lines]
    assert drawn == [[*range(1, 8)]] * 2 + [[3, 4]] * 2


@pytest.mark.parametrize("name", ["accept_lens", "surrogate"])
def test_nothing_to_draw_is_refused(name):
    with pytest.raises(ValueError, match="got nothing to draw, needs 1 or more"):
        getattr(plots, name)({})
