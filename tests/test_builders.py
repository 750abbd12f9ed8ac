"""What every builder keeps to, and what each one is."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdtree import DraftTree, builders, ops
from kdtree.testing.strategies import budgets, marginals

EVERY_BUILDER = pytest.mark.parametrize("name", [*builders.names(), "accum_logp:width=2"])


def assert_same(trees, others):
    for name, array, other in zip(trees._fields, trees, others, strict=True):
        np.testing.assert_array_equal(array, other, err_msg=name)
        assert array.dtype == other.dtype


@EVERY_BUILDER
@given(marginals(), budgets)
def test_a_builder_returns_trees_padded_like_those_of_tree_build(name, inputs, budget):
    trees = builders.get(name)(*inputs, budget)
    padding = ops.tree_build(inputs[0], inputs[1][:, :0], inputs[2][:, :0], budget)  # roots alone
    for b, n in enumerate(trees.node_count_B):
        tree = DraftTree.from_batch(trees, b)  # checks parents, depths and ranks
        assert tree.token_N[0] == inputs[0][b]
        for array, pad in zip(trees[:-1], padding[:-1], strict=True):
            np.testing.assert_array_equal(array[b, n:], pad[b, n:])
            assert array.dtype == pad.dtype


@EVERY_BUILDER
@given(marginals(), budgets)
def test_a_node_is_a_candidate_of_its_depth_and_weighs_its_path(name, inputs, budget):
    trees = builders.get(name)(*inputs, budget)
    for b in range(len(inputs[0])):
        tree = DraftTree.from_batch(trees, b)
        for slot in range(1, tree.node_count):
            path = tree.path(slot)[1:]
            lp = [np.float64(inputs[1][b, tree.depth_N[node] - 1, tree.rank_N[node]]) for node in path]
            assert min(lp) > -np.inf
            assert tree.logw_N[slot] == pytest.approx(sum(lp), abs=1e-12)
            assert tree.token_N[slot] == inputs[2][b, tree.depth_N[slot] - 1, tree.rank_N[slot]]


@EVERY_BUILDER
@given(marginals(), budgets, budgets)
def test_every_builder_declared_nested_is_nested(name, inputs, one, other):
    builder = builders.get(name)
    assert builders.is_nested(builder)  # all of them, so far
    small, large = sorted((one, other))
    smaller, larger = builder(*inputs, small), builder(*inputs, large)
    np.testing.assert_array_equal(smaller.node_count_B, np.minimum(larger.node_count_B, small + 1))
    for array, deeper in zip(smaller[:-1], larger[:-1], strict=True):
        np.testing.assert_array_equal(array, deeper[:, : small + 1])


@EVERY_BUILDER
@given(marginals(max_width=1), budgets)
def test_with_one_candidate_a_depth_the_tree_is_the_chain(name, inputs, budget):
    assert_same(builders.get(name)(*inputs, budget), builders.get("chain")(*inputs, budget))


@given(marginals(), budgets)
def test_the_chain_is_the_best_token_of_each_depth(inputs, budget):
    root, lp, token = inputs
    assert_same(builders.get("chain")(*inputs, budget), ops.tree_build(root, lp[:, :, :1], token[:, :, :1], budget))


@given(marginals(), budgets)
def test_ddtree_is_tree_build(inputs, budget):
    assert_same(builders.get("ddtree")(*inputs, budget), ops.tree_build(*inputs, budget))


@given(marginals(max_batch=1, exact=True), st.integers(1, 30), st.integers(0, 3))
def test_accum_logp_expands_the_best_node_that_is_not_expanded(inputs, budget, width):
    """The definition by lists: look at every node, take the best one without children, add all of them."""
    root, lp, token = inputs
    L, K = lp.shape[1:]
    width = width or K
    nodes, weights, expanded = [()], [0.0], set()
    while len(nodes) <= budget and len(expanded) < len(nodes):
        best = min((i for i in range(len(nodes)) if i not in expanded), key=lambda i: (-weights[i], nodes[i]))
        expanded.add(best)
        depth = len(nodes[best])
        for rank in range(min(width, K) if depth < L else 0):
            if lp[0, depth, rank] > -np.inf and len(nodes) <= budget:
                nodes.append((*nodes[best], rank))
                weights.append(weights[best] + float(lp[0, depth, rank]))
    tree = DraftTree.from_batch(builders.get("accum_logp")(root, lp, token, budget, width=width))
    assert [tuple(tree.rank_N[tree.path(slot)[1:]]) for slot in range(tree.node_count)] == nodes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dtree", "builder: got 'dtree', needs one of accum_logp, chain, ddtree"),
        ("", "builder: got ''"),
        ("chain:width=3", "builder chain: got width=3, needs no settings"),
        ("accum_logp:k=3", "builder accum_logp: got k=3, needs width=N"),
        ("accum_logp:width=x", "builder accum_logp: got width=x, needs width=N"),
        ("accum_logp:width", "builder accum_logp: got width=, needs width=N"),
        ("accum_logp:", "builder accum_logp: got =, needs width=N"),
    ],
)
def test_an_unknown_builder_or_setting_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        builders.get(name)


@EVERY_BUILDER
def test_a_builder_refuses_what_tree_build_refuses(name):
    unsorted = np.float32([[[-2, -1]]])
    with pytest.raises(ValueError, match="top_logprob_BLK: got -1.0 after -2.0"):
        builders.get(name)([0], unsorted, [[[1, 2]]], 2)
    with pytest.raises(ValueError, match="budget: got -1"):
        builders.get(name)([0], -unsorted[:, :, ::-1], [[[1, 2]]], -1)


def test_settings_keep_what_was_declared():
    assert builders.is_nested(partial(builders.get("accum_logp"), width=3))
    assert not builders.is_nested(lambda *inputs: ops.tree_build(*inputs))
