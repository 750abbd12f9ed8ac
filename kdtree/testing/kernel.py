"""A kernel under test: a function that stands in for an op, over the arrays of any library."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kdtree import ops
from kdtree.reference.arrays import rectangular

__all__ = ["Array", "Kernel", "Results", "fetched", "op_of"]

Array: TypeAlias = Any  # of numpy, CuPy, PyTorch or JAX
Results: TypeAlias = tuple[NDArray[Any], ...]

CHANGED = {"compact_cache": 0}  # by op: the place of the argument that it changes


@dataclass(frozen=True)
class Kernel:
    """A function that takes the arguments of an op by position and returns its results.

    Parameters
    ----------
    op : str
        The op whose truth the function is held to.
    function : callable
        Where the op returns several arrays, it returns a tuple of them. Indices are int32.
    arrays : callable or None
        Brings a numpy array to where the function takes it, such as `cupy.asarray` or
        `lambda array: torch.from_numpy(array).cuda()`; `None` for numpy.
    backend : str or None
        Of the project, if it is one of its kernels: these check their arguments, and take any layout and integer.

    Raises
    ------
    ValueError
        There is no such op.
    """

    op: str
    function: Callable[..., Any]
    arrays: Callable[[NDArray[Any]], Array] | None = None
    backend: str | None = None

    def __post_init__(self) -> None:
        op_of(self.op)

    @classmethod
    def of(cls, op: str, backend: str, source: str | PathLike[str] | None = None) -> "Kernel":
        """Return an op on a backend, of a `.cu` file of yours if there is one; errors are those of `Op.on`."""
        function, arrays = op_of(op).on(backend, source), None
        if backend == "cuda":
            import cupy

            arrays = cupy.asarray
        return cls(op, function, arrays, backend)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return tuple(inspect.signature(op_of(self.op).truth).parameters)

    @property
    def changed(self) -> int | None:
        """The place of the argument that is changed in place, and so is a result too."""
        return CHANGED.get(self.op)

    @property
    def library(self) -> str:
        """The name of the library whose arrays the function takes."""
        return library_of(self.brought(np.zeros(1, np.int32)))

    def brought(self, array: NDArray[Any]) -> Array:
        """Return a numpy array where the function takes it."""
        return array if self.arrays is None else self.arrays(array)

    def given(self, arguments: Sequence[Any]) -> list[Array]:
        """Return the arguments as the function takes them, what it changes as a copy."""
        given = list(arguments)
        if self.changed is not None:
            given[self.changed] = self.copied(fetched(given[self.changed]))
        if self.arrays is None:
            return given
        return [
            self.brought(rectangular(name, value))
            if name.rpartition("_")[2].isupper() and library_of(value) in ("builtins", "numpy")
            else value
            for name, value in zip(self.names, given, strict=False)
        ]

    def copied(self, array: NDArray[Any]) -> Array:
        """Return a copy as the function takes it, as far from a multiple of 16 bytes as the array is."""
        start = array.ctypes.data % 16 // array.itemsize
        buffer = np.zeros(start + array.size, array.dtype)
        buffer[start:] = array.ravel()
        return self.brought(buffer)[start:].reshape(array.shape)

    def results(self, arguments: Sequence[Any]) -> Results:
        """Run the function; return what it changes and what it returns as numpy arrays, in a tuple of its type."""
        given = self.given(arguments)
        returned = self.function(*given)
        if self.changed is not None:
            return fetched(given[self.changed]), fetched(returned)
        if not isinstance(returned, tuple | list):
            return (fetched(returned),)
        arrays = tuple(map(fetched, returned))
        named: Any = type(returned)
        return named(*arrays) if hasattr(returned, "_fields") else arrays

    def expected(self, arguments: Sequence[Any]) -> Results:
        """Return the results of the truth."""
        return Kernel(self.op, op_of(self.op).truth).results(arguments)


def op_of(name: str) -> "ops.Op[..., Any]":
    """Return an op by its name; ValueError if there is none."""
    if name not in ops.all_ops():
        raise ValueError(f"op: got {name!r}, needs one of {', '.join(ops.all_ops())}")
    return ops.all_ops()[name]


def library_of(value: object) -> str:
    """Return the name of the library that a value's type is of."""
    return type(value).__module__.partition(".")[0]


def fetched(array: Array) -> NDArray[Any]:
    """Return an array of any library as numpy's; waits for a GPU's."""
    if hasattr(array, "get"):  # of CuPy
        array = array.get()
    elif hasattr(array, "detach"):  # of PyTorch
        array = array.detach().cpu()
    return np.asarray(array)
