"""A round on a device against the ops of the truth, one by one."""

import numpy as np
import pytest
from backends import marks_of, module_of

from kdtree import ops
from kdtree.device_round import DeviceRound, capture
from kdtree.kernels.cuda import argmax
from kdtree.place import fetched

B, L, V, K, BUDGET, Y, S, X = 3, 4, 40, 8, 20, 2, 64, 6
DEVICES = [pytest.param(backend, marks=marks_of(backend)) for backend in ("host", "cuda")]


def device_of(backend):
    if backend == "cuda":
        from kdtree.kernels.cuda._device import device
    else:
        from kdtree.kernels.host._device import device
    return device()


def inputs(seed):
    """Return roots, prefix lengths, logits of drafter and target, and cache; the target often wants what is drafted."""
    rng = np.random.default_rng(seed)
    draft_BLV = rng.normal(size=(B, L, V)).astype(np.float32) * 3
    target_BNV = rng.normal(size=(B, BUDGET + 1, V)).astype(np.float32)
    target_BNV += draft_BLV.max(axis=1)[:, None] * 2
    root_B, prefix_B = rng.integers(0, V, B).astype(np.int32), rng.integers(0, S - BUDGET, B).astype(np.int32)
    return root_B, prefix_B, draft_BLV, target_BNV, rng.normal(size=(Y, B, S, X)).astype(np.float32)


def by_the_truth(root_B, prefix_B, draft_BLV, target_BNV, kv_YBSX):
    """Return trees, mask, acceptance, new lengths and the compacted cache."""
    best = ops.top_k(draft_BLV.reshape(-1, V), K)
    trees = ops.tree_build(root_B, *(array.reshape(B, L, K) for array in best), BUDGET)
    token_BN = ops.argmax(target_BNV.reshape(-1, V)).reshape(B, -1)
    links = ops.retrieve(trees.parent_BN, trees.node_count_B)
    accepted = ops.accept_greedy(trees.token_BN, *links, trees.node_count_B, token_BN)
    kv_YBSX = kv_YBSX.copy()
    length_B = ops.compact_cache(kv_YBSX, prefix_B, accepted.path_BN, accepted.accept_len_B)
    return trees, ops.visibility(trees.parent_BN, trees.node_count_B), accepted, length_B, kv_YBSX


def check_round(backend, given, run):
    """Fill the buffers, run, and compare everything with the truth."""
    xp = module_of(backend)
    root_B, prefix_B, draft_BLV, target_BNV, kv_YBSX = map(xp.asarray, given)
    round_ = DeviceRound(device_of(backend), kv_YBSX.copy(), draft_len=L, vocab_size=V, ranks=K, budget=BUDGET)
    propose, accept = run(round_)
    round_.kv_YBSX[...], round_.root_token_B[...], round_.prefix_len_B[...] = kv_YBSX, root_B, prefix_B
    round_.draft_logit_BLV[...], round_.target_logit_BNV[...] = draft_BLV, target_BNV
    propose()
    accept()
    assert round_.failed() == []
    trees, visible_BNN, accepted, length_B, compacted = by_the_truth(*given)
    got = {
        "mask": (round_.visible_BNN, visible_BNN),
        "cache": (round_.kv_YBSX, compacted),
        "lengths": (round_.prefix_len_B, length_B),
        "roots": (round_.root_token_B, accepted.bonus_B),
        **{name: (getattr(round_.accepted, name), getattr(accepted, name)) for name in accepted._fields},
        **{name: (getattr(round_.trees, name), getattr(trees, name)) for name in ("token_BN", "parent_BN", "depth_BN")},
    }
    for name, (array, expected) in got.items():
        np.testing.assert_array_equal(fetched(array), expected, err_msg=name)
    return accepted.accept_len_B


@pytest.mark.parametrize("backend", DEVICES)
def test_a_round_on_a_device_equals_the_ops_of_the_truth(backend):
    lengths = [check_round(backend, inputs(seed), lambda r: (r.propose, r.accept)) for seed in range(4)]
    assert np.max(lengths) > 1


@pytest.mark.gpu
def test_a_captured_round_equals_the_ops_of_the_truth():
    for seed in range(4):
        check_round("cuda", inputs(seed), graphs)


def graphs(round_):
    """Return both halves as graphs; capturing runs them, so the buffers must hold tokens and lengths."""
    for buffer in (round_.root_token_B, round_.prefix_len_B, round_.draft_logit_BLV, round_.target_logit_BNV):
        buffer[...] = 0
    return capture(round_.propose).launch, capture(round_.accept).launch


@pytest.mark.gpu
def test_a_capture_waits_for_what_the_current_stream_does():
    """Its first run reads buffers that the caller has just filled."""
    cupy = module_of("cuda")
    large, small = cupy.zeros((4096, 4096), np.float32), cupy.zeros((1, 40), np.float32)
    for token in range(20):
        with cupy.cuda.Stream(non_blocking=True):
            for _ in range(10):
                large = large @ large
            small[...] = 0
            small[0, token] = 1 + large[0, 0]
            token_T, status_T = cupy.full(1, -1, np.int32), cupy.full(1, -1, np.int32)
            capture(lambda array=token_T, status=status_T: argmax.launch(device_of("cuda"), small, array, status))
            assert token_T.tolist() == [token]


def test_a_round_says_which_op_refused_its_input():
    round_ = DeviceRound(device_of("host"), np.zeros((Y, B, S, X), np.float32), draft_len=L, vocab_size=V, ranks=K,
                         budget=BUDGET)  # fmt: skip
    round_.root_token_B[...], round_.prefix_len_B[...] = 0, S
    round_.draft_logit_BLV[...], round_.target_logit_BNV[...] = np.nan, 0
    round_.propose()
    round_.accept()
    assert round_.failed()[0] == "top_k"
    assert round_.failed()[-1] == "compact_cache"
