"""Links and the greedy walk: the truth against definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_tree import paths

from kdtree import TreeError, ops
from kdtree.testing.strategies import links_by_definition, marginals, parent_batches, walks

EVERY_BACKEND = pytest.mark.parametrize("backend", ["numpy", "numba"])


def parents_of(first_child_N, next_sibling_N, n):
    """Read the tree back from its links."""
    parents = {0: -1}
    for slot in range(n):
        child = first_child_N[slot]
        while child != -1:
            parents[int(child)] = slot
            child = next_sibling_N[child]
    return [parents[slot] for slot in range(n)]


def child_map_walk(token_N, parent_N, n, target_token_N):
    """Walk by a map of children, first of equal tokens: the published implementation with its tie mended."""
    children = {}
    for slot in range(1, n):
        children.setdefault((int(parent_N[slot]), int(token_N[slot])), slot)
    path = [0]
    while (slot := children.get((path[-1], int(target_token_N[path[-1]])))) is not None:
        path.append(slot)
    return path


@given(parent_batches())
def test_links_list_the_children_of_every_slot_in_order(batch):
    for links, expected in zip(ops.retrieve(*batch), links_by_definition(*batch), strict=True):
        np.testing.assert_array_equal(links, expected)


@given(parent_batches(max_nodes=40))
def test_parents_come_back_from_links(batch):
    parent_BN, node_count_B = batch
    links = ops.retrieve(parent_BN, node_count_B)
    for parent_N, child_N, sibling_N, n in zip(parent_BN, *links, node_count_B, strict=True):
        assert parents_of(child_N, sibling_N, n) == parent_N[:n].tolist()


@given(walks())
def test_the_link_walk_and_the_child_map_walk_agree(walk):
    token_BN, child_BN, sibling_BN, node_count_B, target_BN = walk
    accepted = ops.accept_greedy(*walk)
    for b, n in enumerate(node_count_B):
        parents = parents_of(child_BN[b], sibling_BN[b], n)
        path = child_map_walk(token_BN[b], parents, n, target_BN[b])
        assert accepted.path_BN[b, : len(path)].tolist() == path
        assert (accepted.path_BN[b, len(path) :] == -1).all()
        assert accepted.accept_len_B[b] == len(path)
        assert accepted.bonus_B[b] == target_BN[b, path[-1]]


@given(parent_batches(max_nodes=20), st.lists(st.integers(0, 2), min_size=30, max_size=30), st.data())
def test_the_walk_finds_the_longest_match(batch, text, data):
    """Where the target is a function of the prefix alone: try every path against one fixed text."""
    parent_BN, node_count_B = batch
    token_BN = np.array(data.draw(st.lists(st.integers(0, 2), min_size=parent_BN.size, max_size=parent_BN.size)))
    token_BN = token_BN.reshape(parent_BN.shape)
    depth_BN = np.zeros(parent_BN.shape, int)
    for b, n in enumerate(node_count_B):
        for slot in range(1, n):
            depth_BN[b, slot] = depth_BN[b, parent_BN[b, slot]] + 1
            siblings = [s for s in range(1, slot) if parent_BN[b, s] == parent_BN[b, slot]]
            while token_BN[b, slot] in token_BN[b, siblings]:  # distinct siblings: then the longest match is unique
                token_BN[b, slot] += 3
    target_BN = np.array(text)[depth_BN]
    accepted = ops.accept_greedy(token_BN, *ops.retrieve(*batch), node_count_B, target_BN)
    for b, n in enumerate(node_count_B):
        matches = [
            path for path in paths(parent_BN[b], n).values() if token_BN[b, path[1:]].tolist() == text[: len(path) - 1]
        ]
        longest = max(matches, key=len)
        assert accepted.path_BN[b, : accepted.accept_len_B[b]].tolist() == longest


@given(marginals(max_batch=1, max_depth=4, max_width=4), st.integers(0, 12), st.integers(0, 12), st.data())
def test_a_larger_budget_never_accepts_less(inputs, one, other, data):
    text = np.array(data.draw(st.lists(st.integers(0, 6), min_size=6, max_size=6)))
    lengths = []
    for budget in sorted((one, other)):
        trees = ops.tree_build(*inputs, budget)
        links = ops.retrieve(trees.parent_BN, trees.node_count_B)
        accepted = ops.accept_greedy(trees.token_BN, *links, trees.node_count_B, text[trees.depth_BN])
        lengths.append(accepted.accept_len_B[0])
    assert lengths[0] <= lengths[1]


@st.composite
def broken_links(draw):
    """Draw links of a tree with one link changed to a wrong one, and the arguments around them."""
    parent_BN, node_count_B = draw(parent_batches(max_batch=2, max_nodes=33))
    links = [links.copy() for links in links_by_definition(parent_BN, node_count_B)]
    b = draw(st.integers(0, len(node_count_B) - 1))
    n = int(node_count_B[b])
    which, slot = draw(st.integers(0, 1)), draw(st.integers(0, n - 1))
    right = links[which][b, slot]
    links[which][b, slot] = draw(st.integers(-3, n + 2).filter(lambda wrong: wrong != right))
    return links, node_count_B


@EVERY_BACKEND
@given(broken_links())
def test_malformed_links_end_in_tree_error(backend, case):
    """One changed link always breaks the tree: it drops a slot, adds a second way to one, leads back or leads out."""
    (child_BN, sibling_BN), node_count_B = case
    zeros = np.zeros(child_BN.shape, int)  # every token matches, so that a walk would follow the links anywhere
    with pytest.raises(TreeError, match="batch row"):
        ops.accept_greedy.on(backend)(zeros, child_BN, sibling_BN, node_count_B, zeros)


@EVERY_BACKEND
@pytest.mark.parametrize(
    ("child", "sibling"),
    [
        ([1, -1, -1], [-1, 2, 1]),  # two siblings that lead to each other
        ([1, 0, -1], [-1, 2, -1]),  # a child link back to the root
        ([1, 2, -1], [-1, 2, -1]),  # two parents
        ([1, -1, -1], [-1, -1, -1]),  # slot 2 is unreachable
        ([1, -1, -1], [2, -1, -1]),  # the root has a sibling
        ([1, -1, -1], [-1, 3, -1]),  # a link into the padding
        ([1, -1, -1], [-1, 2, 2]),  # a slot that is its own sibling
    ],
)
def test_each_kind_of_broken_link_is_refused(backend, child, sibling):
    zeros = [[0, 0, 0, 0]]
    with pytest.raises(TreeError):
        ops.accept_greedy.on(backend)(zeros, [[*child, -1]], [[*sibling, -1]], [3], zeros)


# cases that people hit


@EVERY_BACKEND
def test_the_first_of_repeated_siblings_is_walked(backend):
    parent, token, n = [[-1, 0, 1, 1, 0]], [[0, 7, 3, 4, 7]], [5]
    links = ops.retrieve.on(backend)(parent, n)
    accepted = ops.accept_greedy.on(backend)(token, *links, n, [[7, 4, 0, 8, 4]])
    assert accepted.path_BN[0].tolist() == [0, 1, 3, -1, -1]
    assert accepted.bonus_B.tolist() == [8]


@EVERY_BACKEND
def test_the_bonus_token_is_kept_when_every_draft_is_accepted(backend):
    links = ops.retrieve.on(backend)([[-1, 0, 1]], [3])
    accepted = ops.accept_greedy.on(backend)([[9, 5, 6]], *links, [3], [[5, 6, 8]])
    assert (accepted.accept_len_B.tolist(), accepted.bonus_B.tolist()) == ([3], [8])


@EVERY_BACKEND
def test_the_root_alone_commits_the_bonus_token_only(backend):
    accepted = ops.accept_greedy.on(backend)([[9]], [[-1]], [[-1]], [1], [[4]])
    assert (accepted.accept_len_B.tolist(), accepted.bonus_B.tolist()) == ([1], [4])


@EVERY_BACKEND
def test_the_last_of_forty_children_can_be_accepted(backend):
    """A scratch buffer of a fixed number of tried siblings would overrun."""
    parent, token = [[-1] + [0] * 40], [list(range(41))]
    links = ops.retrieve.on(backend)(parent, [41])
    accepted = ops.accept_greedy.on(backend)(token, *links, [41], [[40] * 41])
    assert accepted.path_BN[0, :2].tolist() == [0, 40]


@EVERY_BACKEND
def test_token_zero_is_a_token(backend):
    links = ops.retrieve.on(backend)([[-1, 0, 1, -1]], [3])
    accepted = ops.accept_greedy.on(backend)([[0, 0, 0, 0]], *links, [3], [[0, 0, 0, 0]])
    assert accepted.path_BN[0].tolist() == [0, 1, 2, -1]


def test_links_of_published_shapes():
    assert [a.tolist() for a in ops.retrieve([[-1, 0, 0, 1, 1]], [5])] == [[[1, 3, -1, -1, -1]], [[-1, 2, -1, 4, -1]]]
    assert [a.tolist() for a in ops.retrieve([[-1, 0, 0, 0, 0]], [5])] == [[[1, -1, -1, -1, -1]], [[-1, 2, 3, 4, -1]]]
