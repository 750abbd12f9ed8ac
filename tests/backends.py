"""Run ops on every backend: numpy arrays in and out, whatever the backend takes."""

import inspect
from functools import partial
from unittest import mock

import numpy as np
import pytest

from kdtree import ops
from kdtree.reference.arrays import rectangular

LAYOUTS_OF_NUMPY = ("big-endian", "read-only", "a list")


def pairs(names, truth=False):
    """Return op and backend of every kernel as parameters of a test, with `truth` numpy's too."""
    return [
        pytest.param(ops.all_ops()[name], backend, id=f"{name}-{backend}", marks=marks_of(backend))
        for name in names
        for backend in ops.all_ops()[name].backends()
        if truth or backend != "numpy"
    ]


def marks_of(backend):
    return [pytest.mark.gpu] if backend == "cuda" else []


def module_of(backend):
    """Return the module whose arrays a backend takes: numpy, or CuPy."""
    return pytest.importorskip("cupy") if backend == "cuda" else np


def given_to(op, backend, arguments):
    """Return the arguments with what a shape letter names brought to the backend's device."""
    if backend != "cuda":
        return list(arguments)
    names = inspect.signature(op.truth).parameters
    cupy = module_of(backend)
    return [
        cupy.asarray(rectangular(name, value))
        if name.rpartition("_")[2].isupper() and not isinstance(value, cupy.ndarray)
        else value
        for name, value in zip(names, arguments, strict=False)
    ]


def taken_from(backend, array):
    return module_of(backend).asnumpy(array) if backend == "cuda" else array


def results(op, backend, arguments):
    """Return what the op returns, as a tuple of numpy arrays of the op's type."""
    returned = op.on(backend)(*given_to(op, backend, arguments))
    if not isinstance(returned, tuple):
        return (taken_from(backend, returned),)
    return type(returned)(*(taken_from(backend, array) for array in returned))


def assert_bit_equal(got, expected):
    assert len(got) == len(expected)
    for array, other in zip(got, expected, strict=True):
        assert (array.dtype, array.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(array, other)


def poisoned(zeros, poison, shape, dtype=float):
    array = zeros(shape, dtype)
    array.view(np.uint8).fill(poison)
    return array


def outputs_start_as(poison, backend):
    """Fill what `empty` gives to this backend with a byte, while the context lasts."""
    module = module_of(backend)
    return mock.patch.object(module, "empty", partial(poisoned, module.zeros, poison))


def strided(array):
    """Return an equal array whose memory runs backwards with gaps."""
    backwards = array[tuple(slice(None, None, -1) for _ in array.shape)]
    for axis in range(array.ndim):
        backwards = backwards.repeat(2, axis=axis)
    return backwards[tuple(slice(None, None, -2) for _ in array.shape)]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


LAYOUTS = {
    "strided": strided,
    "fortran": lambda array: array.T.copy().T,
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "read-only": read_only,
    "int64": lambda array: array.astype(np.int64) if array.dtype.kind == "i" else array,
    "a list": lambda array: array.tolist() if array.dtype.kind == "i" and array.size else array,
}


def laid_out(op, backend, layout, arguments):
    """Return the arguments, on the backend's device, with every array in a layout."""
    if backend == "cuda" and layout in LAYOUTS_OF_NUMPY:
        pytest.skip("no such array on a GPU")
    kind = module_of(backend).ndarray
    return [LAYOUTS[layout](a) if isinstance(a, kind) else a for a in given_to(op, backend, arguments)]
