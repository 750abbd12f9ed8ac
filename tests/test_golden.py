"""120 inputs with the answers of the published code, equal on every backend."""

import numpy as np
import pytest
from golden import tree_build_cases

from kdtree import ops

CASES = tree_build_cases()
PAD_TOKEN = 77
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
EVERY_BACKEND = pytest.mark.parametrize("backend", ["numpy", "numba"])


def build(case, backend):
    inputs = case["top_log_probs"][None], case["top_token_ids"][None], int(case["budget"])
    return ops.tree_build.on(backend)([5], *inputs, pad_token=PAD_TOKEN)


def test_there_are_120_cases_of_every_kind():
    assert len(CASES) == 120
    assert {int(case["budget"]) for case in CASES.values()} >= {0, 1, 2, 64, 512}


@EVERY_BACKEND
@EVERY_CASE
def test_the_tree_is_the_published_one(case, backend):
    trees = build(case, backend)
    n = int(trees.node_count_B[0])
    assert n == len(case["parents"])
    assert trees.token_BN[0, :n].tolist() == [5, *case["node_token_ids"]]
    assert trees.depth_BN[0, :n].tolist() == [0, *case["node_depths"]]
    assert trees.parent_BN[0, :n].tolist() == case["parents"].tolist()


@EVERY_BACKEND
@EVERY_CASE
def test_slots_past_the_published_tree_are_padding_up_to_budget_plus_one(case, backend):
    trees = build(case, backend)
    n, N = int(trees.node_count_B[0]), int(case["budget"]) + 1
    assert trees.token_BN.shape == (1, N)
    assert trees.token_BN[0, n:].tolist() == [PAD_TOKEN] * (N - n)
    assert trees.parent_BN[0, n:].tolist() == [-1] * (N - n)
    assert trees.depth_BN[0, n:].tolist() == [0] * (N - n)


@EVERY_BACKEND
@EVERY_CASE
def test_the_mask_is_the_published_one_in_all_three_forms(case, backend):
    trees = build(case, backend)
    tree = trees.parent_BN, trees.node_count_B
    n, words = len(case["parents"]), case["visibility"]
    packed = ops.visibility_packed.on(backend)(*tree)[0]
    np.testing.assert_array_equal(packed[:n, : words.shape[1]], words)
    assert not packed[n:].any()
    assert not packed[:, words.shape[1] :].any()
    visible = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :n].astype(bool)
    np.testing.assert_array_equal(ops.visibility.on(backend)(*tree)[0, :n, :n], visible)
    (pre,), (size,) = ops.visibility_intervals.on(backend)(*tree)
    inside = (pre <= pre[:, None]) & (pre[:, None] < pre + size)
    np.testing.assert_array_equal(inside[:n, :n], visible)
    assert not inside[n:].any()


@EVERY_BACKEND
@EVERY_CASE
def test_links_and_the_greedy_walk_are_the_published_ones(case, backend):
    trees = build(case, backend)
    n = len(case["parents"])
    links = ops.retrieve.on(backend)(trees.parent_BN, trees.node_count_B)
    assert links.first_child_BN[0, :n].tolist() == case["next_token"].tolist()
    assert links.next_sibling_BN[0, :n].tolist() == case["next_sibling"].tolist()
    assert (links.first_child_BN[0, n:] == -1).all()
    assert (links.next_sibling_BN[0, n:] == -1).all()
    target = np.full(trees.token_BN.shape, -1)
    target[0, :n] = case["target_predict"]
    accepted = ops.accept_greedy.on(backend)(trees.token_BN, *links, trees.node_count_B, target)
    path = case["accepted_indices"].tolist()
    assert accepted.path_BN[0].tolist() == path + [-1] * (target.shape[1] - len(path))
    assert accepted.accept_len_B.tolist() == [len(path)]
    assert accepted.bonus_B.tolist() == [case["bonus_token"]]
