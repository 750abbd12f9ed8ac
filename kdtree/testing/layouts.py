"""The ways in which an equal array may lie in memory, one function a way."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .kernel import Array, Kernel
from .strategies import EXACT

__all__ = ["Layout", "layouts_of"]

Layout: TypeAlias = Callable[[Kernel, NDArray[Any]], Array]


def with_gaps(kernel: Kernel, array: NDArray[Any]) -> Array:
    """Return an equal array of which memory holds every element twice."""
    for axis in range(array.ndim):
        array = array.repeat(2, axis=axis)
    return kernel.brought(array)[(np.s_[::2],) * array.ndim]


def transposed(kernel: Kernel, array: NDArray[Any]) -> Array:
    """Return an equal array in Fortran's order."""
    turned, axes = kernel.brought(array.T.copy()), range(array.ndim)[::-1]
    return turned.permute(*axes) if kernel.library == "torch" else turned.transpose(*axes)


def backwards(kernel: Kernel, array: NDArray[Any]) -> Array:
    """Return an equal array whose memory runs backwards with gaps."""
    back = (np.s_[::-1],) * array.ndim
    return with_gaps(kernel, array[back])[back]


def read_only(kernel: Kernel, array: NDArray[Any]) -> Array:
    """Return an equal array that refuses to be written."""
    array = array.copy()
    array.flags.writeable = False
    return array


def int64(kernel: Kernel, array: NDArray[Any]) -> Array:
    """Return integers in a wider type."""
    return kernel.brought(array.astype(np.int64) if array.dtype.kind == "i" else array)


def big_endian(kernel: Kernel, array: NDArray[Any]) -> Array:
    """Return an equal array of the other order of bytes."""
    return array.astype(array.dtype.newbyteorder(">"))


def a_list(kernel: Kernel, array: NDArray[Any]) -> Any:
    """Return integers as nested lists."""
    return array.tolist() if array.dtype.kind == "i" and array.size else array


def layouts_of(kernel: Kernel) -> list[Layout]:
    """Return the layouts that arrays of a kernel's library can have, and that it takes."""
    strided: list[Layout] = [with_gaps, transposed]
    if kernel.library in ("numpy", "cupy"):  # others have no negative strides
        strided.append(backwards)
    if kernel.backend is None:
        return strided
    if kernel.library == "cupy":
        return [*strided, int64]
    return [*strided, int64, read_only, *([big_endian, a_list] if kernel.op in EXACT else [])]
