"""Batches of large trees on every backend, against numba, which the other tests hold to the truth."""

import os

import numpy as np
import pytest
from backends import marks_of, results
from hypothesis import given, settings
from hypothesis import strategies as st

from kdtree import ops
from kdtree.testing.outputs import assert_bit_equal
from kdtree.testing.strategies import TAIL, TIE, ULP, descending

KINDS = {  # step codes of log-prob rows; see strategies.descending
    "mixed": [TIE, ULP, 2, 3, 5, TAIL],
    "ties": [TIE, TIE, TIE, 2],
    "plateaus": [TIE] * 9 + [3],
    "neighbours": [ULP, ULP, TIE],
    "tails": [2, 3, TAIL],
    "steep": [3, 5, 7, 8],
}
SHAPES = st.tuples(
    st.sampled_from([1, 2, 17, 64, 128]), st.sampled_from([1, 7, 15, 31]), st.sampled_from([1, 2, 33, 64])
)
EXAMPLES = int(os.environ.get("KDTREE_LARGE_TREES", "20"))


@pytest.mark.parametrize("backend", [pytest.param(b, marks=marks_of(b)) for b in ("host", "cuda")])
@settings(max_examples=EXAMPLES)
@given(
    shape=SHAPES, budget=st.sampled_from([16, 64, 256]), kind=st.sampled_from(list(KINDS)), seed=st.integers(0, 2**32)
)
def test_large_batches_are_built_masked_linked_and_walked_as_on_numba(backend, shape, budget, kind, seed):
    rng = np.random.default_rng(seed)
    B, L, K = shape if backend == "cuda" else (min(shape[0], 2), *shape[1:])  # fibers are slow
    dtype = (np.float32, np.float64)[seed % 2]
    logprob_BLK = descending(rng.choice(KINDS[kind], (B, L, K)), dtype)
    token_BLK = rng.integers(0, 5, (B, L, K)).astype(np.int32)
    arguments = rng.integers(0, 5, B).astype(np.int32), logprob_BLK, token_BLK, budget
    trees = results(ops.tree_build, "numba", arguments)
    assert_bit_equal(results(ops.tree_build, backend, arguments), trees)
    described = trees.parent_BN, trees.node_count_B
    for op in (ops.visibility, ops.visibility_packed, ops.visibility_intervals, ops.retrieve):
        assert_bit_equal(results(op, backend, described), results(op, "numba", described))
    target_BN = rng.integers(0, 5, trees.token_BN.shape).astype(np.int32)
    walk = trees.token_BN, *ops.retrieve.on("numba")(*described), trees.node_count_B, target_BN
    assert_bit_equal(results(ops.accept_greedy, backend, walk), results(ops.accept_greedy, "numba", walk))
