"""The CPU as a device: the CUDA sources, compiled by g++ and run by `fibers.h`; numpy arrays in and out."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kdtree.kernels.cuda._plan import check_arguments
from kdtree.kernels.cuda._source import SHARED_LIMIT, define_options, source
from kdtree.reference.arrays import Bool, Float, Index, floats, integers, rectangular
from kdtree.reference.errors import ShapeError

from ._build import compiler, library

__all__ = ["HostDevice", "KernelFault", "device"]


class KernelFault(RuntimeError):
    """A kernel did what has no defined result: a barrier that not all threads reach, a shuffle from nowhere."""


class Size(ctypes.Structure):
    """Three sizes, as in `fibers.h`."""

    _fields_ = [(letter, ctypes.c_uint) for letter in "xyz"]


class Plan(ctypes.Structure):
    """A launch, as in `fibers.h`."""

    _fields_ = [("grid", Size), ("block", Size), ("shared_bytes", ctypes.c_uint64), ("seed", ctypes.c_uint64)]


class HostDevice:
    """Run kernels block after block, threads in an order that a seed permutes; seed 0 is their own order.

    Parameters
    ----------
    seed : int
        A kernel that misses a barrier gives other results, or wrong ones, under some seed.
    flags : sequence of str
        More options of g++.
    sources : mapping of str to str
        By op, a text that is compiled in place of `<op>.cu`.
    """

    shared_limit = SHARED_LIMIT

    def __init__(self, seed: int = 0, flags: Sequence[str] = (), sources: Mapping[str, str] | None = None) -> None:
        compiler()  # ImportError if there is none
        self.seed, self.flags, self.sources = seed, tuple(flags), sources or {}

    def array(self, name: str, value: ArrayLike) -> NDArray[Any]:
        """Return `value` as an array."""
        return rectangular(name, value)

    def integers(self, name: str, value: ArrayLike) -> Index:
        """Return `value` as C-ordered int32."""
        return integers(name, value)

    def floats(self, name: str, value: ArrayLike) -> Float:
        """Return `value` C-ordered in its own precision."""
        return floats(name, value)

    def bools(self, name: str, value: ArrayLike) -> Bool:
        """Return `value` as C-ordered bool."""
        array = rectangular(name, value)
        if array.dtype != np.bool_:
            raise ShapeError(f"{name}: got dtype {array.dtype}, needs bool")
        return np.asarray(array, order="C")

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Return an array whose contents are undefined."""
        return np.empty(shape, dtype)

    def numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array itself."""
        return array

    def launch(
        self,
        op: str,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[object],
        shared_bytes: int = 0,
        **defines: object,
    ) -> None:
        """Run a kernel; see `Device`. TypeError also where an argument is not of its parameter's type."""
        check_arguments(self, kernel, arguments, shared_bytes)
        compiled = library(self.sources.get(op) or source(op), (*define_options(defines), *self.flags))
        passed = pass_arguments(kernel, parameters(compiled, kernel), arguments)
        plan = Plan(as_size(grid), as_size(block), shared_bytes, self.seed)
        message = ctypes.create_string_buffer(256)
        places = (ctypes.c_void_p * len(passed))(*[argument.ctypes.data for argument in passed])
        if compiled[f"launch_{kernel}"](ctypes.byref(plan), places, message):
            raise KernelFault(f"{kernel}: {message.value.decode()}")


def as_size(size: int | Sequence[int]) -> Size:
    """Return one to three sizes as three."""
    return Size(*(*((size,) if isinstance(size, int) else size), 1, 1)[:3])


def parameters(compiled: ctypes.CDLL, kernel: str) -> list[str]:
    """Return the types of a kernel's parameters, as the compiler saw them."""
    function = compiled[f"parameters_{kernel}"]
    function.restype = ctypes.c_char_p
    text: bytes = function()
    return text.decode().split(",")[:-1]


def pass_arguments(kernel: str, declared: Sequence[str], arguments: Sequence[object]) -> list[NDArray[Any]]:
    """Return each argument in an array of one element, or raise TypeError unless it is of its parameter's type."""
    if len(arguments) != len(declared):
        raise TypeError(f"{kernel}: got {len(arguments)} arguments, needs {len(declared)}")
    passed: list[NDArray[Any]] = []
    for k, (needs, argument) in enumerate(zip(declared, arguments, strict=True)):
        if isinstance(argument, np.ndarray) and argument.flags.c_contiguous:
            got = f"{argument.dtype.name}*"
            fits = needs.removeprefix("const ") in (got, "bytes*")  # bytes: a struct, such as int4
            fits &= argument.flags.writeable or needs.startswith("const ")
            passed.append(np.array(argument.ctypes.data, np.uint64))
        else:
            got = argument.dtype.name if isinstance(argument, np.generic) else f"a {type(argument).__name__}"
            fits = got == needs
            passed.append(np.array(argument))
        if not fits:
            raise TypeError(f"{kernel}: got {got} as argument {k}, needs {needs}")
    return passed


def device(sources: Mapping[str, str] | None = None) -> HostDevice:
    """Return the device of `Op.on("host")`; KDTREE_HOST_SEED is its seed, KDTREE_HOST_FLAGS are its flags."""
    seed, flags = os.environ.get("KDTREE_HOST_SEED", "0"), os.environ.get("KDTREE_HOST_FLAGS", "")
    return HostDevice(int(seed), flags.split(), sources)
