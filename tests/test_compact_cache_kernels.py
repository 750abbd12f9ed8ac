"""Compaction on every backend: in place, of any dtype and width, and nothing is moved where a path is none."""

import numpy as np
import pytest
from backends import assert_bit_equal, given_to, pairs, taken_from
from hypothesis import given
from hypothesis import strategies as st

from kdtree import ShapeError, TreeError, ops

KERNELS = pytest.mark.parametrize(("op", "backend"), pairs(["compact_cache"]))


@st.composite
def caches(draw):
    """Draw the arguments of compact_cache, the cache off the borders of words and with garbage behind paths."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    Y, B, N = draw(st.integers(0, 3)), draw(st.integers(0, 4)), draw(st.sampled_from([1, 2, 7, 8, 9, 33]))
    S, X = N + draw(st.integers(0, 5)), draw(st.sampled_from([0, 1, 3, 4, 8, 17, 576]))
    dtype = np.dtype(draw(st.sampled_from(["f8", "f4", "f2", "u2", "u1"])))
    start, size = draw(st.integers(0, 4)), Y * B * S * X
    kv_YBSX = rng.integers(0, 255, start + size).astype(dtype)[start:].reshape(Y, B, S, X)
    path_BN, accept_len_B = np.full((B, N), draw(st.sampled_from([-1, 2**31 - 1])), np.int32), np.zeros(B, np.int32)
    for b in range(B):
        path = np.flatnonzero(rng.random(N) < draw(st.sampled_from([0.1, 0.5, 1.0])))
        path = np.unique([0, *path])[: draw(st.sampled_from([0, N]))]
        path_BN[b, : len(path)], accept_len_B[b] = path, len(path)
    return kv_YBSX, rng.integers(0, S - N + 1, B).astype(np.int32), path_BN, accept_len_B


def compacted(op, backend, arguments):
    """Return the cache and the lengths after compaction; the arguments stay as they are."""
    kv_YBSX, *paths = given_to(op, backend, [arguments[0].copy(), *arguments[1:]])
    length_B = op.on(backend)(kv_YBSX, *paths)
    return [taken_from(backend, array) for array in (kv_YBSX, length_B)]


@KERNELS
@given(arguments=caches())
def test_a_compacted_cache_is_that_of_the_truth(op, backend, arguments):
    assert_bit_equal(compacted(op, backend, arguments), compacted(op, "numpy", arguments))


@KERNELS
@pytest.mark.parametrize(
    ("path", "length"), [([1, 2], 2), ([0, 0], 2), ([0, 2, 1], 3), ([0, 9], 2), ([0, 1], 4), ([0, 1], -1), ([0, -5], 2)]
)
def test_a_path_that_is_none_is_the_error_of_the_truth_and_nothing_is_moved(op, backend, path, length):
    path_BN = np.array([[0, 2, 3], [*path, *[-1] * (3 - len(path))]])
    messages = []
    for place in ("numpy", backend):
        before = np.arange(12.0).reshape(1, 2, 6, 1)
        inputs = given_to(op, place, [before.copy(), np.array([1, 1]), path_BN, np.array([3, length])])
        with pytest.raises(TreeError, match="batch row 1") as caught:
            op.on(place)(*inputs)
        np.testing.assert_array_equal(taken_from(place, inputs[0]), before)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_cache_that_would_be_copied_is_refused():
    paths = np.array([1]), np.array([[0, 1]]), np.array([2])
    with pytest.raises(ShapeError, match="kv_YBSX: got an array with gaps"):
        ops.compact_cache.on("host")(np.zeros((2, 1, 9, 4))[:, :, ::2], *paths)
    with pytest.raises(TypeError, match="kv_YBSX: got list, needs numpy.ndarray"):
        ops.compact_cache.on("host")(np.zeros((2, 1, 4, 4)).tolist(), *paths)


@pytest.mark.parametrize("length", [-1, 10])
def test_a_prefix_that_is_not_in_the_cache_is_refused(length):
    for backend in ("numpy", "host"):
        with pytest.raises(ShapeError, match=f"prefix_len_B: got {length} at batch row 0, needs 0 to S = 9"):
            ops.compact_cache.on(backend)(np.zeros((2, 1, 9, 4)), np.array([length]), np.array([[0]]), np.array([0]))
