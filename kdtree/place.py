"""Where the arrays of a model are: numpy's, or CuPy's for the backend "cuda"."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .ops import Op

__all__ = ["fetched", "kernel_of", "placed"]

P = ParamSpec("P")
T = TypeVar("T")


def kernel_of(op: Op[P, T], backend: str) -> Callable[P, T]:
    """Return an op on a backend; numba and numpy take the same arrays, so one without a numba kernel runs in numpy."""
    return op.on("numpy" if backend == "numba" and backend not in op.backends() else backend)


def placed(value: T, backend: str) -> T:
    """Return a numpy array, or a dataclass of arrays and of tuples and dataclasses of them, where a backend needs it.

    Examples
    --------
    >>> placed(np.zeros(2), "numba")
    array([0., 0.])
    """
    if backend != "cuda":
        return value
    moved: Any = value
    if isinstance(value, np.ndarray):
        import cupy

        moved = cupy.asarray(value)
    elif is_dataclass(value) and not isinstance(value, type):
        moved = replace(value, **{f.name: placed(getattr(value, f.name), backend) for f in fields(value)})
    elif isinstance(value, tuple):
        moved = tuple(placed(item, backend) for item in value)
    return moved  # type: ignore[no-any-return]


def fetched(array: T) -> T:
    """Return an array as numpy's; waits for a GPU's."""
    return array if isinstance(array, np.ndarray) else array.get()  # type: ignore[attr-defined]
