"""The mask: its definition, and its three forms."""

import numpy as np
import pytest
from hypothesis import given
from naive_tree import paths

from kdtree import ops
from kdtree.testing.strategies import parent_batches


@given(parent_batches())
def test_a_node_sees_exactly_its_ancestors_and_itself(batch):
    parent_BN, node_count_B = batch
    visible_BNN = ops.visibility(parent_BN, node_count_B)
    for visible_NN, parent_N, n in zip(visible_BNN, parent_BN, node_count_B, strict=True):
        for slot, path in paths(parent_N, n).items():
            assert np.flatnonzero(visible_NN[slot]).tolist() == path


@given(parent_batches())
def test_the_mask_is_the_closure_of_the_parent_relation(batch):
    """A second truth: (identity + parent) to the power N."""
    parent_BN, node_count_B = batch
    for visible_NN, parent_N, n in zip(ops.visibility(parent_BN, node_count_B), parent_BN, node_count_B, strict=True):
        reach_NN = np.eye(n, dtype=bool)
        reach_NN[np.arange(1, n), parent_N[1:n]] = True
        for _ in range(int(n).bit_length()):
            reach_NN = (reach_NN.astype(np.float32) @ reach_NN.astype(np.float32)) > 0
        np.testing.assert_array_equal(visible_NN[:n, :n], reach_NN)


@given(parent_batches())
def test_the_three_forms_of_visibility_agree(batch):
    visible_BNN = ops.visibility(*batch)
    N = visible_BNN.shape[2]
    words_BNW = ops.visibility_packed(*batch)
    assert words_BNW.shape[2] == -(-N // 64)
    slot = np.arange(words_BNW.shape[2] * 64)
    bits = (words_BNW[:, :, slot // 64] >> (slot % 64).astype(np.uint64)) & np.uint64(1)
    np.testing.assert_array_equal(bits[:, :, :N].astype(bool), visible_BNN)
    assert not bits[:, :, N:].any()
    pre_BN, size_BN = ops.visibility_intervals(*batch)
    pre_i, pre_j, size_j = pre_BN[:, :, None], pre_BN[:, None, :], size_BN[:, None, :]
    np.testing.assert_array_equal((pre_j <= pre_i) & (pre_i < pre_j + size_j), visible_BNN)


@given(parent_batches())
def test_a_padded_slot_neither_sees_nor_is_seen(batch):
    visible_BNN = ops.visibility(*batch)
    for visible_NN, n in zip(visible_BNN, batch[1], strict=True):
        assert not visible_NN[n:].any()
        assert not visible_NN[:, n:].any()


@given(parent_batches())
def test_preorder_numbers_every_real_slot_once_parents_first(batch):
    pre_BN, size_BN = ops.visibility_intervals(*batch)
    for pre_N, size_N, parent_N, n in zip(pre_BN, size_BN, *batch, strict=True):
        assert sorted(pre_N[:n]) == list(range(n))
        assert (pre_N[1:n] > pre_N[parent_N[1:n]]).all()
        assert size_N[0] == n


def test_a_full_chain_of_one_candidate_is_lower_triangular():
    visible_BNN = ops.visibility([[-1, 0, 1, 2, 3]], [5])
    np.testing.assert_array_equal(visible_BNN[0], np.tril(np.ones((5, 5), bool)))


@pytest.mark.parametrize("slots", [40, 64, 65, 129])
def test_a_late_child_of_the_root_does_not_see_the_chain_before_it(slots):
    visible_BNN = ops.visibility([[*range(-1, slots - 1), 0]], [slots + 1])
    assert np.flatnonzero(visible_BNN[0, slots]).tolist() == [0, slots]


def test_garbage_in_another_row_changes_nothing():
    good, alone = [-1, 0, 0], ops.visibility([[-1, 0, 0]], [3])
    np.testing.assert_array_equal(ops.visibility([good, [-1, -99, 99]], [3, 1])[:1], alone)
