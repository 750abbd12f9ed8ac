"""Compaction on every backend: in place, and nothing is moved where a path is none."""

import numpy as np
import pytest
from backends import pairs

from kdtree import ShapeError, TreeError, ops
from kdtree.place import fetched
from kdtree.testing import Kernel

KERNELS = pytest.mark.parametrize(("op", "backend"), pairs(["compact_cache"]))


@KERNELS
@pytest.mark.parametrize(
    ("path", "length"),
    [
        ([1, 2], 2),
        ([0, 0], 2),
        ([0, 2, 1], 3),
        ([0, 9], 2),
        ([0, 2**31 - 1], 2),
        ([0, -(2**31)], 2),
        ([0, 1], 4),
        ([0, 1], -1),
        ([0, -5], 2),
    ],
)
def test_a_path_that_is_none_is_the_error_of_the_truth_and_nothing_is_moved(op, backend, path, length):
    path_BN = np.array([[0, 2, 3], [*path, *[-1] * (3 - len(path))]])
    messages = []
    for place in ("numpy", backend):
        before = np.arange(12.0).reshape(1, 2, 6, 1)
        inputs = Kernel.of(op.name, place).given([before, np.array([1, 1]), path_BN, np.array([3, length])])
        with pytest.raises(TreeError, match="batch row 1") as caught:
            op.on(place)(*inputs)
        np.testing.assert_array_equal(fetched(inputs[0]), before)
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
