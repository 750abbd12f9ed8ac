"""Properties of the truth of tree_build, and the cases that people hit."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kdtree import ops
from kdtree.reference.tree_build_by_sorting import tree_build_by_sorting
from kdtree.testing.strategies import budgets, marginals

EVERY_BACKEND = pytest.mark.parametrize(
    "build", [ops.tree_build.on(b) for b in ops.tree_build.backends() if b != "cuda"]
)


def assert_same(trees, others):
    for name, array, other in zip(trees._fields, trees, others, strict=True):
        np.testing.assert_array_equal(array, other, err_msg=name)


def ranks_of(trees, b=0):
    """Return the tuple of ranks of every real slot."""
    ranks = {0: ()}
    for slot in range(1, trees.node_count_B[b]):
        ranks[slot] = (*ranks[int(trees.parent_BN[b, slot])], int(trees.rank_BN[b, slot]))
    return list(ranks.values())


def build_case(rows, budget, build=ops.tree_build):
    top_logprob_BLK = np.float32(rows)[None]
    ids = 100 * (1 + np.arange(top_logprob_BLK.shape[1]))[:, None] + np.arange(top_logprob_BLK.shape[2])
    return build([0], top_logprob_BLK, ids[None], budget)


@given(marginals(), budgets)
def test_trees_are_prefix_closed(inputs, budget):
    trees = ops.tree_build(*inputs, budget)
    for b in range(len(trees.node_count_B)):
        taken = ranks_of(trees, b)
        assert all(ranks[:-1] in taken[:slot] for slot, ranks in enumerate(taken) if slot)


@given(marginals(), budgets, budgets)
def test_trees_are_nested_over_budgets(inputs, one, other):
    """Only the sibling limit min(budget, K) depends on the budget, and it never binds before the budget does."""
    small, large = sorted((one, other))
    smaller, larger = ops.tree_build(*inputs, small), ops.tree_build(*inputs, large)
    np.testing.assert_array_equal(smaller.node_count_B, np.minimum(larger.node_count_B, small + 1))
    cut = larger._make((*(array[:, : small + 1] for array in larger[:-1]), smaller.node_count_B))
    assert_same(smaller, cut)


@given(marginals(max_depth=3, max_width=4, exact=True), budgets)
def test_the_heap_takes_what_sorting_every_prefix_takes(inputs, budget):
    assert_same(ops.tree_build(*inputs, budget), tree_build_by_sorting(*inputs, budget))


@given(marginals(max_batch=1, max_depth=3, max_width=3, exact=True, tails=False), st.integers(0, 5))
def test_no_tree_of_this_budget_has_more_surrogate_mass(inputs, budget):
    """Enumerate every prefix-closed set of this size and sum q over it."""
    root, lp, token = inputs
    L, K = lp.shape[1:]
    prefixes = [p for d in range(1, L + 1) for p in itertools.product(range(min(K, budget)), repeat=d)]
    assume(len(prefixes) <= 14)
    mass = {p: float(np.exp(sum(np.float64(lp[0, d, r]) for d, r in enumerate(p)))) for p in prefixes}
    trees = ops.tree_build(root, lp, token, budget)
    size = trees.node_count_B[0] - 1
    closed = (c for c in itertools.combinations(prefixes, size) if all(len(p) == 1 or p[:-1] in c for p in c))
    best = max(sum(mass[p] for p in c) for c in closed)
    assert np.exp(trees.logw_BN[0, 1 : size + 1]).sum() == pytest.approx(best, rel=1e-12)


@given(marginals(exact=True), budgets)
def test_weights_never_rise_in_pop_order(inputs, budget):
    trees = ops.tree_build(*inputs, budget)
    for logw_N, n in zip(trees.logw_BN, trees.node_count_B, strict=True):
        assert (np.diff(logw_N[:n]) <= 0).all()


@given(marginals(), budgets)
def test_weights_never_rise_along_a_path_beyond_rounding(inputs, budget):
    trees = ops.tree_build(*inputs, budget)
    for b, n in enumerate(trees.node_count_B):
        logw_N, parent_N = trees.logw_BN[b, :n], trees.parent_BN[b, :n]
        assert (logw_N[1:] <= logw_N[parent_N[1:]] + 1e-12).all()


@given(marginals(), budgets)
def test_a_weight_is_the_sum_of_its_path(inputs, budget):
    trees = ops.tree_build(*inputs, budget)
    for b in range(len(trees.node_count_B)):
        for slot, ranks in enumerate(ranks_of(trees, b)):
            path = sum((np.float64(inputs[1][b, d, r]) for d, r in enumerate(ranks)), start=0.0)
            assert trees.logw_BN[b, slot] == pytest.approx(path, abs=1e-12)
            assert trees.depth_BN[b, slot] == len(ranks)
            assert not ranks or trees.token_BN[b, slot] == inputs[2][b, len(ranks) - 1, ranks[-1]]


@EVERY_BACKEND
@given(marginals(max_batch=4), budgets)
def test_batch_rows_do_not_influence_each_other(build, inputs, budget):
    together = build(*inputs, budget)
    for b in range(len(inputs[0])):
        alone = build(*(array[b : b + 1] for array in inputs), budget)
        assert_same(alone, together._make(array[b : b + 1] for array in together))


@EVERY_BACKEND
@given(marginals(), budgets, st.integers(1, 1000))
def test_renaming_tokens_renames_nodes_and_changes_nothing_else(build, inputs, budget, offset):
    root, lp, token = inputs
    trees, renamed = build(root, lp, token, budget), build(root, lp, token + offset, budget)
    real = np.arange(budget + 1) < trees.node_count_B[:, None]
    real[:, 0] = False
    assert_same(renamed._replace(token_BN=renamed.token_BN - offset * real), trees)


@EVERY_BACKEND
@given(marginals(), budgets)
def test_the_tree_is_as_large_as_the_budget_or_the_prefixes_allow(build, inputs, budget):
    trees = build(*inputs, budget)
    for b, lp_LK in enumerate(inputs[1]):
        reachable, at_depth = 0, 1
        for row in lp_LK:
            at_depth *= int((row > -np.inf).sum())
            reachable += at_depth
        assert trees.node_count_B[b] == 1 + min(budget, reachable)


@EVERY_BACKEND
@given(marginals(), budgets, st.integers(0, 9))
def test_padded_slots_hold_the_stated_sentinels(build, inputs, budget, pad_token):
    trees = build(*inputs, budget, pad_token)
    pad = np.arange(budget + 1) >= trees.node_count_B[:, None]
    for array, sentinel in zip(trees[:-1], (pad_token, 0, -1, -1, -np.inf), strict=True):
        assert (array[pad] == sentinel).all()


@EVERY_BACKEND
@given(marginals(max_depth=7, max_width=7), st.integers(0, 4))
@example((np.int32([0]), np.float64([[[-1e308, -1.7e308], [-1.7e308, -1.7e308]]]), np.int32([[[1, 2], [3, 4]]])), 6)
def test_no_weight_is_nan(build, inputs, budget):
    assert not np.isnan(build(*inputs, budget).logw_BN).any()


# cases that people hit: design of the rule in the name, the answer worked out by hand


@EVERY_BACKEND
def test_equal_weights_go_to_the_smaller_ranks(build):
    trees = build_case([[-0.5, -0.5], [-1, -1]], 4, build)
    assert ranks_of(trees) == [(), (0,), (1,), (0, 0), (0, 1)]
    assert trees.parent_BN[0].tolist() == [-1, 0, 0, 1, 1]


@EVERY_BACKEND
def test_a_prefix_sorts_before_its_extensions(build):
    trees = build_case([[-1, -1], [0, -5]], 4, build)
    assert ranks_of(trees) == [(), (0,), (0, 0), (1,), (1, 0)]
    assert trees.parent_BN[0].tolist() == [-1, 0, 1, 0, 3]


@EVERY_BACKEND
@pytest.mark.parametrize(("shape", "budget"), [((3, 0), 5), ((0, 4), 5), ((3, 4), 0), ((0, 0), 0)])
def test_no_budget_no_depth_or_no_candidates_leave_the_root_alone(build, shape, budget):
    trees = build([9], np.zeros((1, *shape), np.float32), np.zeros((1, *shape), int), budget)
    assert trees.node_count_B.tolist() == [1]
    assert trees.parent_BN[0].tolist() == [-1] * (budget + 1)
    assert ops.visibility(trees.parent_BN, trees.node_count_B)[0].sum() == 1


@EVERY_BACKEND
@pytest.mark.parametrize(("budget", "nodes"), [(10, 10), (12, 12), (50, 12)])
def test_the_budget_may_exceed_what_is_reachable(build, budget, nodes):
    assert build_case([[-1, -2, -3], [-1, -2, -3]], budget, build).node_count_B[0] == nodes + 1


@EVERY_BACKEND
def test_a_tree_of_depth_one_is_a_star(build):
    trees = build_case([[-1, -2, -3, -4]], 4, build)
    assert trees.parent_BN[0].tolist() == [-1, 0, 0, 0, 0]


@EVERY_BACKEND
def test_a_minus_inf_sibling_ends_its_row(build):
    rows = [[0, -np.inf, -np.inf], [-1, -2, -3]]
    assert ranks_of(build_case(rows, 4, build)) == [(), (0,), (0, 0), (0, 1), (0, 2)]
    assert build_case(rows, 9, build).node_count_B[0] == 5


@EVERY_BACKEND
def test_a_row_without_candidates_ends_every_path_before_it(build):
    rows = [[-1, -2], [-np.inf, -np.inf], [-1, -2]]
    assert ranks_of(build_case(rows, 9, build)) == [(), (0,), (1,)]


@EVERY_BACKEND
def test_a_node_carries_the_token_of_its_depth_and_rank(build):
    trees = build_case([[-0.1, -0.3, -0.9]] * 3, 30, build)
    assert (trees.token_BN[0, 1:] // 100 == trees.depth_BN[0, 1:]).all()
    assert (trees.token_BN[0, 1:] % 100 == trees.rank_BN[0, 1:]).all()


@EVERY_BACKEND
def test_repeated_tokens_in_a_row_stay_separate_nodes(build):
    trees = build([0], np.float32([[[-0.2, -1.7], [-0.3, -1.4]]]), [[[7, 7], [3, 4]]], 4)
    assert trees.parent_BN[0].tolist() == [-1, 0, 1, 1, 0]
    assert trees.token_BN[0].tolist() == [0, 7, 3, 4, 7]


@EVERY_BACKEND
def test_float32_log_probs_are_summed_in_float64(build):
    lp = np.float32([[[-0.1], [-0.2], [-0.3]]])
    expected = np.cumsum(lp[0, :, 0].astype(np.float64))
    np.testing.assert_array_equal(build([0], lp, np.zeros((1, 3, 1), int), 3).logw_BN[0, 1:], expected)
