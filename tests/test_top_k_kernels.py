"""The best tokens of a row on every backend: the truth's, where many logits tie and where the vocabulary is large."""

import numpy as np
import pytest
from backends import pairs, results

from kdtree.testing.outputs import assert_bit_equal

KINDS = {
    "any": lambda rng, shape: 3 * rng.normal(size=shape),
    "few": lambda rng, shape: rng.integers(0, 3, shape).astype(float),
    "one": lambda rng, shape: np.where(np.arange(shape[1]) == shape[1] - 1, 0, -np.inf) + np.zeros(shape),
    "equal": lambda rng, shape: np.full(shape, -1e30),
    "zeros": lambda rng, shape: rng.choice([0.0, -0.0, -1e-30], shape),
}
SIZES = [(1, 1), (5, 9), (37, 0), (32, 32), (33, 33), (64, 63), (129, 128), (1025, 1024), (8193, 64), (20000, 1024)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("op", "backend"), pairs(["top_k"]))
def test_tokens_are_those_of_the_truth(op, backend, kind, dtype):
    rng = np.random.default_rng(0)
    for V, k in SIZES:
        logit_TV = KINDS[kind](rng, (2, V)).astype(dtype)
        got, expected = results(op, backend, (logit_TV, k)), results(op, "numpy", (logit_TV, k))
        np.testing.assert_array_equal(got.token_TK, expected.token_TK)
        np.testing.assert_allclose(got.logprob_TK, expected.logprob_TK, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "backend"), pairs(["top_k"]))
def test_a_large_vocabulary_has_the_tokens_of_the_truth(op, backend):
    logit_TV = np.random.default_rng(0).normal(size=(1, 163_840)).astype(np.float32)
    for k in (64, 1024):
        got, expected = results(op, backend, (logit_TV, k)), results(op, "numpy", (logit_TV, k))
        np.testing.assert_array_equal(got.token_TK, expected.token_TK)
        np.testing.assert_allclose(got.logprob_TK, expected.logprob_TK, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("op", "backend"), pairs(["argmax"]))
def test_the_largest_logit_is_the_first_of_equal_ones(op, backend, kind):
    rng = np.random.default_rng(0)
    for V, _ in SIZES:
        logit_TV = KINDS[kind](rng, (3, V))
        assert_bit_equal(results(op, backend, [logit_TV]), results(op, "numpy", [logit_TV]))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("V", [1, 40, 5000])
@pytest.mark.parametrize(("op", "backend"), pairs(["argmax", "top_k"]))
def test_a_row_without_a_best_token_is_the_error_of_the_truth(op, backend, V, wrong):
    logit_TV = np.zeros((3, V))
    logit_TV[1] = wrong
    arguments = [logit_TV] if op.name == "argmax" else [logit_TV, 2]
    if op.name == "argmax" and not np.isnan(wrong):
        assert_bit_equal(results(op, backend, arguments), results(op, "numpy", arguments))
        return
    messages = set()
    for place in ("numpy", backend):
        with pytest.raises(ValueError, match="row 1") as caught:
            results(op, place, arguments)
        messages.add(str(caught.value))
    assert len(messages) == 1
