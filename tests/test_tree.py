"""One tree as a dataclass of arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_tree import paths

from kdtree import DraftTree, ShapeError, TreeError, ops
from kdtree.testing.strategies import budgets, marginals, parent_lists


def arrays(tree):
    return {name: getattr(tree, name) for name in ("token_N", "depth_N", "parent_N", "rank_N", "logw_N")}


@given(marginals(), budgets)
def test_a_batch_row_becomes_a_tree_without_its_padding(inputs, budget):
    trees = ops.tree_build(*inputs, budget)
    for b, n in enumerate(trees.node_count_B):
        tree = DraftTree.from_batch(trees, b)
        assert tree.node_count == tree.budget + 1 == n
        for (name, array), batch in zip(arrays(tree).items(), trees, strict=False):
            np.testing.assert_array_equal(array, batch[b, :n], err_msg=name)


@given(parent_lists(max_nodes=65))
def test_a_tree_from_parents_has_the_depths_and_paths_of_its_parents(parents):
    tree = DraftTree.from_parents(parents)
    for slot, path in paths(parents, len(parents)).items():
        assert tree.path(slot).tolist() == path
        assert tree.depth_N[slot] == len(path) - 1


@given(parent_lists(max_nodes=33), st.data())
def test_the_expected_accept_length_is_the_sum_of_all_path_probabilities(parents, data):
    probs = [1.0] + [data.draw(st.floats(0, 1, width=32)) for _ in parents[1:]]
    expected = sum(np.prod([probs[slot] for slot in path]) for path in paths(parents, len(parents)).values())
    tree = DraftTree.from_parents(parents, prob_N=probs)
    assert tree.expected_accept_len == pytest.approx(expected, rel=1e-9)


def test_unknown_weights_give_an_unknown_expectation():
    assert np.isnan(DraftTree.from_parents([-1, 0]).expected_accept_len)
    assert DraftTree.from_parents([-1]).expected_accept_len == 1.0


@given(marginals(max_batch=1), budgets, budgets)
def test_truncating_gives_the_tree_of_the_smaller_budget(inputs, one, other):
    small, large = sorted((one, other))
    tree = DraftTree.from_batch(ops.tree_build(*inputs, large))
    assert tree.truncate(small) == DraftTree.from_batch(ops.tree_build(*inputs, small))
    assert tree.truncate(large) == tree


@given(parent_lists(max_nodes=20))
def test_making_a_tree_copies_and_freezes_its_arrays(parents):
    given_parents = np.array(parents)
    tree = DraftTree.from_parents(given_parents)
    given_parents[:] = 99
    assert tree.parent_N.tolist() == parents
    for array in arrays(tree).values():
        assert not array.flags.writeable


def test_trees_are_equal_by_value_and_not_hashable():
    tree = DraftTree.from_parents([-1, 0])
    assert tree == DraftTree.from_parents([-1, 0])
    assert tree != DraftTree.from_parents([-1, 0], token_N=[0, 5])
    assert tree != "a tree"
    with pytest.raises(TypeError):
        hash(tree)


GOOD = arrays(DraftTree.from_parents([-1, 0, 0, 1], prob_N=[1, 0.5, 0.5, 0.5]))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"token_N": [0, 1, 2]}, ShapeError, "N = 3 as in token_N"),
        ({"token_N": [[0, 1, 2, 3]]}, ShapeError, r"token_N: got shape \(1, 4\)"),
        ({"token_N": [0.5, 1, 2, 3]}, ShapeError, "token_N: got dtype float64"),
        ({"token_N": [0, -1, 2, 3]}, TreeError, "token_N: got -1 at slot 1"),
        ({"parent_N": [-1, 0, 0, 3]}, TreeError, "parent_BN: got 3 at batch row 0, slot 3"),
        ({"parent_N": [0, 0, 0, 1]}, TreeError, "slot 0 is the root"),
        ({"depth_N": [0, 1, 1, 3]}, TreeError, "depth_N: got 3 at slot 3, needs 2"),
        ({"depth_N": [1, 1, 1, 2]}, TreeError, "depth_N: got 1 at slot 0, needs 0"),
        ({"rank_N": [5, 0, 1, 0]}, TreeError, "got rank 5, logw 0.0 at the root"),
        ({"logw_N": [-3, 0, 0, 0]}, TreeError, "got rank -1, logw -3.0 at the root"),
        ({"rank_N": [-1, 0, 0, 0]}, TreeError, "rank_N: got 0 at slots 1 and 2"),
        ({"rank_N": [-1, 0, -1, 0]}, TreeError, "rank_N: got -1 at slot 2"),
        ({"logw_N": [0, np.inf, 0, 0]}, TreeError, "logw_N: got inf at slot 1"),
        ({"logw_N": [[0, 0, 0, 0]]}, ShapeError, "logw_N: got shape"),
        ({name: [] for name in GOOD}, ShapeError, "dtype float64"),
        ({name: np.zeros(0, int) for name in GOOD}, ShapeError, "got 0 slots"),
    ],
)
def test_arrays_that_are_no_tree_are_refused(change, error, message):
    DraftTree(**GOOD).validate()
    with pytest.raises(error, match=message):
        DraftTree(**{**GOOD, **change})


@pytest.mark.parametrize("probs", [[1, -0.1], [1, 1.1], [1, np.nan]])
def test_a_probability_outside_0_to_1_is_refused(probs):
    with pytest.raises(ValueError, match="prob_N: got .*needs "):
        DraftTree.from_parents([-1, 0], prob_N=probs)


def test_slots_rows_and_budgets_out_of_range_are_refused():
    tree = DraftTree.from_parents([-1, 0])
    for slot in (-1, 2):
        with pytest.raises(IndexError, match=f"slot: got {slot}, needs 0 to 1"):
            tree.path(slot)
    with pytest.raises(ValueError, match="budget: got -1"):
        tree.truncate(-1)
    with pytest.raises(IndexError, match="row: got 1, needs 0 to 0"):
        DraftTree.from_batch(ops.tree_build([0], np.zeros((1, 0, 0), np.float32), np.zeros((1, 0, 0), int), 2), 1)


def test_a_tree_shows_itself_in_terminals_and_notebooks():
    tree = DraftTree.from_parents([-1, 0], token_N=[7, 42], prob_N=[1, 0.5])
    assert repr(tree) == "<DraftTree of 1 nodes, depth 1>"
    assert "42" in str(tree)
    assert tree._repr_svg_().startswith("<svg")
    assert "expected accept length 1.50 tokens" in tree._repr_html_()
