"""Tree builders on every backend: bit for bit the truth, where many weights tie, overflow or are of a large tree."""

import numpy as np
import pytest
from backends import pairs, results
from golden import tree_build_cases

from kdtree import ops
from kdtree.testing.outputs import assert_bit_equal

KERNELS = pytest.mark.parametrize(("op", "backend"), pairs(["tree_build"]))
OF_DEVICES = [pair for pair in pairs(["tree_build"]) if pair.values[1] != "numba"]
SIZES = [(16, 1024, 64), (16, 80, 1024), (64, 2, 127), (64, 1, 200), (2, 40, 31), (3, 33, 33), (5, 65, 64), (2, 9, 129)]
KINDS = {
    "any": lambda rng, shape: -np.abs(rng.normal(size=shape)),
    "ties": lambda rng, shape: -rng.integers(0, 4, shape) / 8,
    "zeros": lambda rng, shape: rng.choice([0.0, -0.0], shape),
    "ended": lambda rng, shape: np.where(rng.random(shape) < 0.3, -np.inf, -rng.integers(0, 3, shape)),
    "overflow": lambda rng, shape: rng.choice([-1.7e308, -1e308, -1.0, 0.0, 1e308, 1.7e308], shape),
}


def bits(arrays):
    return [array.view(np.int64) if array.dtype == np.float64 else array for array in arrays]


def assert_same_bits(op, backend, arguments):
    assert_bit_equal(bits(results(op, backend, arguments)), bits(results(op, "numpy", arguments)))


@KERNELS
def test_the_golden_trees_have_the_bits_of_the_truth(op, backend):
    for case in tree_build_cases().values():
        inputs = case["top_log_probs"][None], case["top_token_ids"][None], int(case["budget"]), 77
        assert_same_bits(op, backend, (np.int32([5]), *inputs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("op", "backend"), OF_DEVICES)
def test_trees_of_every_size_have_the_bits_of_the_truth(op, backend, kind):
    rng = np.random.default_rng(0)
    for L, K, budget in SIZES:
        lp = -np.sort(-KINDS[kind](rng, (2, L, K)), axis=2)
        token = rng.integers(0, 2**31, (2, L, K)).astype(np.int32)
        assert_same_bits(op, backend, (np.int32([0, 2**31 - 1]), lp, token, budget))


@pytest.mark.parametrize(("op", "backend"), OF_DEVICES)
def test_a_batch_of_many_trees_has_the_bits_of_the_truth(op, backend):
    lp = -np.sort(np.random.default_rng(0).random((300, 2, 3), np.float32), axis=2)
    assert_same_bits(op, backend, (np.arange(300), lp, np.arange(1800).reshape(lp.shape), 5))


def test_a_budget_beyond_the_shared_memory_is_refused_with_need_and_limit():
    logprob, token = np.zeros((1, 1, 1)), np.zeros((1, 1, 1), int)
    assert ops.tree_build.on("host")([0], logprob, token, 4223).node_count_B.tolist() == [2]
    with pytest.raises(ValueError, match="tree_build: needs 101400 B of shared memory, got a limit of 101376 B"):
        ops.tree_build.on("host")([0], logprob, token, 4224)
