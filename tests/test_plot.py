"""Drawings on matplotlib axes."""

import io
import itertools
import subprocess
import sys
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pytest

from kdtree import DraftTree, plot

mpl.use("agg")
from matplotlib import pyplot as plt

NASTY = [
    "",
    " ",
    "\n",
    "\t",
    "\x00",
    "$x^2$",
    "$",
    "\\",
    "语言",
    "e\u0301",
    "\ufffe",
    "\ud800",
    "😀",
    "a very long token",
]


@dataclass
class Result:
    tau: dict[int, float]
    tau_interval: dict[int, tuple[float, float]]


def result(tau):
    return Result(tau, {budget: (t - 0.1, t + 0.1) for budget, t in tau.items()})


@pytest.fixture(autouse=True)
def no_trace_left(monkeypatch):
    """Fail a test in which something is shown, closed or set for all; close the figures afterwards."""

    def refuse(*args, **kwargs):
        raise AssertionError("a plot function must not do this")

    before = mpl.rcParams.copy()
    kept = plt.figure()
    with monkeypatch.context() as patch:
        patch.setattr(plt, "show", refuse)
        patch.setattr(plt, "close", refuse)
        yield
    assert plt.fignum_exists(kept.number)
    assert mpl.rcParams == before
    plt.close("all")


def tree_of(budget, depth=7):
    """Return a tree with a long spine, wide tops and decaying weights."""
    rng = np.random.default_rng(0)
    parents, depths = [-1], [0]
    for i in range(1, budget + 1):
        parent = i - 1 if i <= depth else int(rng.choice([j for j in range(i) if depths[j] < depth]))
        parents.append(parent)
        depths.append(depths[parent] + 1)
    return DraftTree.from_parents(parents, rng.integers(0, 256, budget + 1), rng.uniform(0, 1, budget + 1))


def nasty(token):
    return NASTY[token % len(NASTY)]


def save(ax):
    ax.figure.savefig(io.BytesIO())


def drawn_boxes(ax):
    renderer = ax.figure.canvas.get_renderer()
    return [text.get_bbox_patch().get_window_extent(renderer) for text in ax.texts if text.get_text()]


@pytest.mark.parametrize("draw", [plot.tree, lambda _, ax: plot.accept_curve({"chain": result({1: 1.5})}, ax)])
def test_the_given_axes_come_back_and_no_figure_is_made(draw):
    ax = plt.subplots()[1]
    figures = plt.get_fignums()
    assert draw(tree_of(8), ax) is ax
    assert plt.get_fignums() == figures
    save(ax)


def test_importing_plot_does_not_import_matplotlib():
    code = "import sys, kdtree.plot; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_tree_has_a_label_and_a_probability_a_node_and_an_edge_a_child():
    tree = tree_of(64)
    ax = plot.tree(tree, label=chr, path=[0, 1, 2, -1])
    assert ax.get_xlabel() == "depth (tokens after the root)"
    assert len(ax.texts) == 2 * tree.node_count
    assert sum(text.get_text().endswith("%") for text in ax.texts) >= 64
    (edges,) = ax.collections
    assert len(edges.get_paths()) == tree.budget
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["accepted path"]
    assert sum(text.get_weight() == "bold" for text in ax.texts) == 3


@pytest.mark.parametrize("budget", [0, 8, 64])
@pytest.mark.parametrize("label", [str, nasty])
def test_boxes_of_a_tree_lie_in_a_figure_of_their_own_and_do_not_overlap(budget, label):
    ax = plot.tree(tree_of(budget), label=label, path=[0])
    save(ax)
    outlines, page = drawn_boxes(ax), ax.figure.bbox
    assert all(page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 and b.y1 <= page.y1 for b in outlines)
    for a, b in itertools.combinations(outlines, 2):
        shared = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(shared) < 3  # pixels: a probability may touch its own box


def test_labels_are_at_least_8_points_in_a_figure_of_their_own_at_256_nodes():
    ax = plot.tree(tree_of(256), label=chr)
    assert min(text.get_size() for text in ax.texts[::2]) >= 8


def test_labels_shrink_and_are_cut_in_small_axes():
    axes = plt.subplots(2, 2)[1]
    ax = plot.tree(tree_of(30), axes[0, 0], label=lambda token: "tokenization")
    assert all(text.get_size() < 8 for text in ax.texts)
    assert {text.get_text() for text in ax.texts[::2]} == {"tok…"}
    save(ax)


def test_dollar_signs_are_not_mathematics():
    ax = plot.tree(DraftTree.from_parents([-1, 0]), label=lambda token: "$x^2$")
    assert not ax.texts[0].get_parse_math()
    save(ax)


@pytest.mark.parametrize("prob_N", [None, [1, 0.0, 0.5]])
def test_weights_that_are_not_finite_are_drawn(prob_N):
    save(plot.tree(DraftTree.from_parents([-1, 0, 1], prob_N=prob_N), path=[1]))


def test_a_chain_of_1024_is_drawn():
    ax = plot.tree(DraftTree.from_parents(np.arange(1025) - 1))
    assert max(ax.figure.get_size_inches()) <= 100


def test_a_bad_path_is_refused_before_anything_is_drawn():
    figures = plt.get_fignums()
    with pytest.raises(IndexError, match="path: got slot 9, needs 0 to 8"):
        plot.tree(tree_of(8), path=[9])
    assert plt.get_fignums() == figures


def test_an_accept_curve_has_a_line_and_a_band_a_builder():
    tau = {0: 1.0, 1: 1.7, 4: 2.7, 16: 3.5, 64: 4.1}
    flat = {budget: min(t, 2.8) for budget, t in tau.items()}
    ax = plot.accept_curve({"chain": result(flat), "best first": result(tau)})
    assert ax.get_xlabel() == "node budget (drafted nodes verified per round)"
    assert ax.get_ylabel() == "accept length (tokens per round)"
    assert len(ax.lines) == len(ax.collections) == 2
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), list(flat.items()))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["best first", "chain"]
    looks = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines]
    assert all(a != b for a, b in zip(*looks, strict=True))
    save(ax)


def test_budgets_are_evenly_spaced_powers_of_two_and_0_is_not_lost():
    ax = plot.accept_curve({"best first": result({0: 1.0, 1: 1.7, 8: 2.7})})
    save(ax)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2", "4", "8"]
    places = ax.transData.transform([(budget, 1) for budget in (0, 1, 2, 4, 8)])[:, 0]
    np.testing.assert_allclose(np.diff(places), places[1] - places[0])
    assert ax.get_xlim()[0] < 0


def test_y_begins_just_below_1_token_per_round():
    bottom, top = plot.accept_curve({"chain": result({4: 2.0, 8: 2.9})}).get_ylim()
    assert 0.8 < bottom <= 1
    assert top > 3


@pytest.mark.parametrize("budget", [0, 1, 7, 64])
def test_one_budget_alone_is_a_marked_point_with_its_interval(budget):
    ax = plot.accept_curve({"chain": result({budget: 2.8})})
    assert ax.lines[0].get_marker() == "o"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [str(budget)]
    assert len(ax.collections) == 1
    save(ax)


def test_markers_are_left_out_when_budgets_are_many():
    ax = plot.accept_curve({"best first": result({budget: 1 + budget / 9 for budget in range(1, 65)})})
    assert ax.lines[0].get_marker() == ""


def test_a_second_curve_on_the_same_axes_fits():
    ax = plot.accept_curve({"chain": result({1: 1.5, 8: 2.8})})
    plot.accept_curve({"best first": result({1: 1.7, 64: 9.0})}, ax)
    assert ax.get_ylim()[1] > 9
    assert ax.get_xlim()[1] > 64


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({}, "results: got no builder, needs 1 or more"),
        ({"chain": Result({}, {})}, r"results\['chain'\].tau: got no budget, needs 1 or more"),
        ({"chain": result({-1: 1.0})}, r"results\['chain'\].tau: got budget -1, needs 0 or more"),
        ({"chain": Result({4: 2.0}, {})}, r"tau_interval: got nothing for budget 4, needs its interval"),
    ],
)
def test_results_that_cannot_be_drawn_are_refused_by_name(results, message):
    with pytest.raises(ValueError, match=message):
        plot.accept_curve(results)
