"""What may come in: the suffix of an array's name is its shape, and these functions hold it to that.

The letters are the project's key (CONTRIBUTING.md). `sizes(parent_BN=p, node_count_B=n)` binds B and N from the first
array that has them and refuses any later array that disagrees, so a wrong shape is found by the name of its argument.
"""

import operator
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ShapeError

__all__ = ["Bool", "Float", "Index", "Words", "count", "floats", "integers", "rectangular", "sizes"]

Bool: TypeAlias = NDArray[np.bool_]
Float: TypeAlias = NDArray[np.floating[Any]]
Index: TypeAlias = NDArray[np.int32]
Words: TypeAlias = NDArray[np.uint64]

INT32 = np.iinfo(np.int32)


class Shaped(Protocol):
    """Anything with a shape: numpy, CuPy and torch arrays alike."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def sizes(**arrays: Shaped) -> Mapping[str, int]:
    """Bind each shape letter to its size, over arrays passed by name; raise ShapeError where two disagree."""
    return bind(tuple(arrays), tuple([array.shape for array in arrays.values()]))


@lru_cache(maxsize=1024)  # the same shapes come round after round
def bind(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> Mapping[str, int]:
    """Bind letters to sizes; the message of an error says which array gave each size."""
    bound: dict[str, tuple[int, str]] = {}
    for name, shape in zip(names, shapes, strict=True):
        letters = name[name.rfind("_") + 1 :]
        known = [f"{letter} = {bound[letter][0]} as in {bound[letter][1]}" for letter in letters if letter in bound]
        agrees = len(shape) == len(letters)
        for letter, size in zip(letters, shape, strict=False):
            agrees &= bound.setdefault(letter, (size, name))[0] == size
        if not agrees:
            needs = f"({', '.join(letters)})" + (f" with {', '.join(dict.fromkeys(known))}" if known else "")
            raise ShapeError(f"{name}: got shape {tuple(shape)}, needs {needs}")
    return MappingProxyType({letter: size for letter, (size, _) in bound.items()})


def rectangular(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return `value` as an array; ShapeError for nested lists of unequal length."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ShapeError(f"{name}: got nested lists of unequal length, needs an array") from None


def integers(name: str, value: ArrayLike) -> Index:
    """Return `value` as C-ordered int32; ShapeError if it is not of integers, ValueError if one does not fit."""
    array = rectangular(name, value)
    if array.dtype.kind not in "iu":
        raise ShapeError(f"{name}: got dtype {array.dtype}, needs integers")
    if array.dtype != np.int32 and array.size:
        for extreme in (array.min(), array.max()):
            if not INT32.min <= int(extreme) <= INT32.max:
                raise ValueError(f"{name}: got {extreme}, needs values that fit int32")
    return np.asarray(array, np.int32, order="C")


def floats(name: str, value: ArrayLike) -> Float:
    """Return `value` C-ordered in its own precision; ShapeError unless that is float32 or float64."""
    array = rectangular(name, value)
    native = array.dtype.newbyteorder("=")
    if native not in (np.float32, np.float64):
        raise ShapeError(f"{name}: got dtype {array.dtype}, needs float32 or float64")
    return np.asarray(array, native, order="C")


def count(name: str, value: int) -> int:
    """Return `value` as an int; TypeError if it is no integer, ValueError if it is negative or beyond int32."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: got {value!r}, needs an integer") from None
    if not 0 <= number <= INT32.max:
        raise ValueError(f"{name}: got {number}, needs 0 to {INT32.max}")
    return number
