"""What kernels allocate, poisoned and guarded, and how results are compared."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .kernel import Array, Kernel

__all__ = ["assert_alike", "assert_bit_equal", "outputs_start_as", "require"]

Pair: TypeAlias = tuple[str, NDArray[Any], NDArray[Any]]
GUARD = 512  # bytes on both sides of an output, which leave it aligned


@contextmanager
def outputs_start_as(poison: int, kernel: Kernel) -> Iterator[None]:
    """Fill what `numpy.empty` or `cupy.empty` gives to a kernel with a byte, and look at the end what is beside it."""
    module, buffers = sys.modules[kernel.library], list[Array]()

    def empty(shape: int | Sequence[int], dtype: DTypeLike = float) -> Array:
        shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        size = prod(shape) * np.dtype(dtype).itemsize
        buffer = module.zeros(size + 2 * GUARD, np.uint8)
        buffer.fill(poison)
        buffers.append(buffer)
        return buffer[GUARD : GUARD + size].view(dtype).reshape(shape)

    with mock.patch.object(module, "empty", empty):
        yield
    for buffer in buffers:
        require((buffer[:GUARD] == poison).all(), "writes before the first element of an output")
        require((buffer[-GUARD:] == poison).all(), "writes behind the last element of an output")


def require(right: object, message: str) -> None:
    """Raise AssertionError unless something is so; unlike `assert`, in optimised Python too."""
    if not right:
        raise AssertionError(message)


def assert_alike(got: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], op: str) -> Iterator[Pair]:
    """Yield name, array and expected array of each result; AssertionError where number, shape or dtype differ."""
    require(len(got) == len(expected), f"{op}: got {len(got)} arrays, needs {len(expected)}")
    for name, array, other in zip(getattr(expected, "_fields", [op] * len(got)), got, expected, strict=True):
        require(array.shape == other.shape, f"{name}: got shape {array.shape}, needs {other.shape}")
        require(array.dtype == other.dtype, f"{name}: got dtype {array.dtype}, needs {other.dtype}")
        yield name, array, other


def assert_bit_equal(got: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], op: str = "result") -> None:
    """Raise AssertionError at the first element that differs, or where number, shape or dtype do.

    0 differs from -0, and one NaN does not from another.
    """
    for name, array, other in assert_alike(got, expected, op):
        differ = (array != other) & ((array == array) | (other == other))
        if array.dtype.kind == "f":
            differ |= (array == 0) & (np.signbit(array) != np.signbit(other))
        for place in np.argwhere(differ)[:1]:
            where = tuple(place.tolist())
            raise AssertionError(f"{name}{list(where) or ''}: got {array[where]}, needs {other[where]}")
