"""Compile a kernel once: one signature each, kept on disk.

Compiling takes seconds and would be paid at every start of the command line, so the machine code is cached. The cache
of numba is safe between processes only under two rules, which this module and the tests hold the kernels to:

- one signature a kernel. numba numbers the files of a function's overloads by what it saw at load, so two processes
  that add different overloads at once can swap them; with one signature both write the same code.
- a kernel calls only functions of its own file, for numba compares the date of that file alone.

No fastmath: the order of every floating-point operation is part of the result.
"""

from collections.abc import Callable
from typing import Any

import numba
from numba import types

__all__ = ["device", "inp", "kernel", "out"]

device = numba.njit  # a function that kernels of the same file call


def inp(dtype: types.Type, ndim: int) -> types.Array:
    """Return the type of a C-ordered input; it is read-only, so memory-mapped arrays fit and none is changed."""
    return types.Array(dtype, ndim, "C", readonly=True)


def out(dtype: types.Type, ndim: int) -> types.Array:
    """Return the type of a C-ordered output."""
    return types.Array(dtype, ndim, "C")


def kernel(result: types.Type, *arguments: types.Type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile the decorated function for these types alone; it releases the GIL while it runs."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = result(*arguments)
        try:
            return numba.njit(signature, nogil=True, cache=True)(function)
        except Exception:  # no writable folder, or a damaged file: without the cache it compiles, or says why not
            return numba.njit(signature, nogil=True)(function)

    return compiled
