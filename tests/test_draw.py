"""Text and SVG drawings of draft trees."""

import itertools
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kdtree import DraftTree, ShapeError, draw
from kdtree.draw.labels import cells, clip, readable, visible
from kdtree.draw.picture import place

SVG = "{http://www.w3.org/2000/svg}"
NASTY = [
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "\x00",
    "\x1b[31m",
    '<&">',
    "]]>",
    "\\",
    "\\n",
    "语言",
    "e\u0301",
    "\u0301",
    "\ufffe",
]
NASTY += [
    "\ud800",
    "\u2028",
    "\u202e",
    "\u200b",
    "$x_1$",
    "😀",
    "␣",
    "∅",
    "&amp;",
    "a very long token indeed, and more",
]
quick = settings(deadline=None, max_examples=60)


@st.composite
def parent_lists(draw, max_size=24):
    N = draw(st.integers(1, max_size))
    return [-1, *(draw(st.integers(0, i - 1)) for i in range(1, N))]


@st.composite
def drawn_trees(draw):
    """Draw a tree with any weights, and a label for each of its tokens."""
    parents = draw(parent_lists())
    N = len(parents)
    weights = st.sampled_from([np.nan, -np.inf, 0.0, -1e-9, -0.5, -20.0, -800.0, 1e308]) | st.floats(-9, 0)
    logw_N = [0.0, *draw(st.lists(weights, min_size=N - 1, max_size=N - 1))]
    labels = draw(st.lists(st.sampled_from(NASTY) | st.text(max_size=9), min_size=N, max_size=N))
    return replace(DraftTree.from_parents(parents), logw_N=logw_N), labels


def small_tree():
    return DraftTree.from_parents([-1, 0, 0, 1], token_N=[10, 97, 32, 98], prob_N=[1, 0.6, 0.4, 0.9])


def chain(N):
    return DraftTree.from_parents(np.arange(N) - 1, prob_N=np.full(N, 0.5))


def groups(document):
    return ElementTree.fromstring(document).findall(f"{SVG}g")


def boxes(document):
    """Return left, top, right, bottom of each slot's box."""
    rects = [group.find(f"{SVG}rect") for group in groups(document)]
    x, y, width, height = np.array([[float(r.get(k)) for k in ("x", "y", "width", "height")] for r in rects]).T
    return np.stack([x, y, x + width, y + height], axis=1)


def curves(document):
    """Return each edge as points, x ascending."""
    t = np.linspace(0, 1, 101)[:, None]
    weights = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    paths = ElementTree.fromstring(document).findall(f"{SVG}path")
    return [weights @ np.array(re.findall(r"[\d.]+", path.get("d")), float).reshape(4, 2) for path in paths]


def test_a_text_drawing_shows_slots_probabilities_the_path_and_the_tree():
    assert draw.text(small_tree(), chr, path=[0, 1, -1, -1]).splitlines() == [
        "slot         p  path p",
        r"   0 ✓           1.000  \n",
        "   1 ✓   0.600   0.600  ├─ a",
        "   3     0.900   0.540  │  └─ b",
        "   2     0.400   0.400  └─ ␣",
    ]


@quick
@given(drawn_trees())
def test_text_has_one_line_a_slot_and_its_columns_align_whatever_the_labels(drawn):
    tree, labels = drawn
    heading, *lines = draw.text(tree, labels.__getitem__).split("\n")
    assert all(len(line.splitlines()) == 1 for line in lines)
    assert sorted(int(line.split()[0]) for line in lines) == list(range(tree.node_count))
    ends = [match.end() for match in re.finditer("slot|path p|p", heading)]
    assert all(line[end - 1] != " " and line[end] == " " for line in lines for end in (ends[0], ends[2]))
    assert all(line[ends[1] - 1] != " " for line in lines[1:])
    tree_column = ends[2] + 2
    for line in lines:
        slot = int(line.split()[0])
        depth = tree.depth_N[slot]
        assert line[tree_column + 3 * depth :] == visible(labels[slot])


@quick
@given(parent_lists())
def test_children_stand_below_their_parent_in_slot_order(parents):
    order = [int(line.split()[0]) for line in draw.text(DraftTree.from_parents(parents)).split("\n")[1:]]
    walked, todo = [], [0]
    while todo:
        slot = todo.pop()
        walked.append(slot)
        todo += [child for child in range(len(parents) - 1, 0, -1) if parents[child] == slot]
    assert order == walked


def test_weights_that_are_unknown_or_minus_infinity_are_drawn_as_such():
    unknown = DraftTree.from_parents([-1, 0])
    assert draw.text(unknown).splitlines()[2].split() == ["1", "?", "?", "└─", "1"]
    impossible = DraftTree.from_parents([-1, 0, 1], prob_N=[1, 0, 0.5])
    assert [line.split()[1:3] for line in draw.text(impossible).splitlines()[2:]] == [["0", "0"], ["?", "0"]]
    assert draw.svg(unknown).count("stroke-dasharray") == 1
    assert draw.svg(impossible).count("stroke-dasharray") == 0


def test_a_chain_of_1024_is_drawn_without_recursion():
    tree = chain(1025)
    assert len(draw.text(tree).splitlines()) == 1026
    assert len(groups(draw.svg(tree, path=range(1025)))) == 1025


@quick
@given(st.text(max_size=12) | st.sampled_from(NASTY), st.text(max_size=12) | st.sampled_from(NASTY))
@example(" ", "␣")
@example("\n", "\\n")
@example("", "∅")
def test_labels_are_visible_and_different_labels_look_different(first, second):
    assert visible(first).isprintable()
    assert " " not in visible(first)
    assert cells(visible(first)) > 0
    assert (visible(first) == visible(second)) == (first == second)


@quick
@given(st.text(max_size=12) | st.sampled_from(NASTY))
@example("if x:\n\ty = '\\0'\x1b[31m\r")
def test_readable_text_keeps_its_lines_and_its_spaces_and_nothing_else_that_cannot_be_seen(text):
    shown = readable(text)
    assert shown.count("\n") == text.count("\n")
    assert shown.replace("\n", "").isprintable()
    assert readable(shown) == shown
    if text.isascii() and text.replace("\n", "").isprintable():
        assert shown == text


@quick
@given(st.text(max_size=12), st.integers(1, 12))
def test_a_clipped_label_fits(label, width):
    clipped = clip(label, width)
    assert cells(clipped) <= width
    assert clipped == label or (clipped.endswith("…") and label.startswith(clipped[:-1]))


@quick
@given(parent_lists(60))
def test_leaves_take_consecutive_rows_and_a_parent_the_middle_of_its_children(parents):
    preorder_N, row_N, row_count = place(np.array(parents, np.int32))
    children = [[j for j in range(1, len(parents)) if parents[j] == i] for i in range(len(parents))]
    assert [row_N[i] for i in preorder_N if not children[i]] == list(range(row_count))
    for i, below in enumerate(children):
        assert not below or row_N[i] == (row_N[below[0]] + row_N[below[-1]]) / 2


@quick
@given(drawn_trees())
def test_svg_is_well_formed_and_has_one_titled_box_a_slot(drawn):
    tree, labels = drawn
    document = draw.svg(tree, labels.__getitem__, [0])
    titles = [group.findtext(f"{SVG}title") for group in groups(document)]
    assert len(titles) == tree.node_count
    for i, title in enumerate(titles):
        assert title.startswith(f"slot {i}, token {tree.token_N[i]}: {visible(labels[i])}\ndepth {tree.depth_N[i]}, ")
        assert ("accepted" in title.split("\n")) == (i == 0)
    assert len(curves(document)) == tree.budget


@quick
@given(drawn_trees())
def test_boxes_lie_on_the_paper_and_do_not_overlap(drawn):
    tree, labels = drawn
    document = draw.svg(tree, labels.__getitem__)
    paper = ElementTree.fromstring(document)
    outlines = boxes(document)
    assert outlines.min() > 0
    assert outlines[:, 2].max() < float(paper.get("width"))
    assert outlines[:, 3].max() < float(paper.get("height"))
    for a, b in itertools.combinations(outlines, 2):
        assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]


@quick
@given(drawn_trees())
def test_edges_join_their_boxes_and_do_not_cross(drawn):
    tree, labels = drawn
    document = draw.svg(tree, labels.__getitem__)
    outlines, edges = boxes(document), curves(document)
    for i, edge in enumerate(edges, 1):
        parent = outlines[tree.parent_N[i]]
        np.testing.assert_allclose(edge[0], [parent[2], (parent[1] + parent[3]) / 2], atol=0.11)
        np.testing.assert_allclose(edge[-1], [outlines[i, 0], (outlines[i, 1] + outlines[i, 3]) / 2], atol=0.11)
    for a, b in itertools.combinations(edges, 2):
        x = np.linspace(max(a[0, 0], b[0, 0]), min(a[-1, 0], b[-1, 0]), 50)
        if x[0] < x[-1]:
            gap = np.interp(x, *a.T) - np.interp(x, *b.T)
            assert (gap <= 0.2).all() or (gap >= -0.2).all()


def test_the_accepted_path_has_its_own_colour_and_a_thick_outline():
    plain, marked = draw.svg(small_tree()), draw.svg(small_tree(), path=[0, 1, 3])
    assert "#d55e00" not in plain
    assert plain.count('stroke-width="2.5"') == 0
    assert marked.count('stroke-width="2.5"') == marked.count('font-weight="bold"') == 3
    assert marked.count('stroke="#d55e00"') == 3 + 2  # boxes and edges


def test_svg_needs_nothing_from_elsewhere():
    document = draw.svg(small_tree(), chr)
    assert re.findall(r"https?://[^\"]*", document) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<style|<script|href|url\(|@import", document)


@pytest.mark.parametrize(
    ("tree", "summary"),
    [
        (small_tree(), "3 nodes, depth 2, expected accept length 2.54 tokens"),
        (DraftTree.from_parents([-1, 0]), "1 node, depth 1, weights unknown"),
        (DraftTree.from_parents([-1]), "0 nodes, depth 0, expected accept length 1.00 tokens"),
    ],
)
def test_html_sums_the_tree_up_in_a_line(tree, summary):
    page = ElementTree.fromstring(draw.html(tree))
    assert page.findtext("div") == f"Draft tree: {summary}"
    assert page.find(f"div/{SVG}svg") is not None


@pytest.mark.parametrize("function", [draw.text, draw.svg, draw.html])
@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ([0, 4], IndexError, "path: got slot 4, needs 0 to 3"),
        ([-2], IndexError, "path: got slot -2, needs 0 to 3, or -1 for padding"),
        ([0.0], ShapeError, "path: got dtype float64"),
        ([[0, 1]], ShapeError, r"path: got shape \(1, 2\), needs one row"),
        ([2**40], ValueError, "path: got"),
    ],
)
def test_a_bad_path_is_refused_by_name(function, path, error, message):
    with pytest.raises(error, match=message):
        function(small_tree(), str, path)


def test_a_label_that_is_no_string_is_refused_by_name():
    with pytest.raises(TypeError, match=r"label: got b'a' for token 10, needs a str"):
        draw.text(small_tree(), lambda token: b"a")
