"""The error that a rounded result may have: twice that of the truth in the same precision, and a few roundings."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .kernel import Kernel, Results
from .outputs import assert_alike

__all__ = ["assert_within_budget"]

FEW = 6  # roundings
FINER = {np.dtype(np.float32): np.float64, np.dtype(np.float64): np.longdouble}


def assert_within_budget(kernel: Kernel, arguments: Sequence[Any]) -> None:
    """Hold floats to |got - exact| <= 2 |truth - exact| + FEW eps size, integers to equality.

    `truth` is the reference in the precision of the arguments, `exact` the reference in the next finer one, and `size`
    how large the terms of the result are.

    Raises
    ------
    AssertionError
        A result is beyond the budget; it names the worst element.
    """
    dtype = next(a.dtype for a in arguments if isinstance(a, np.ndarray) and a.dtype.kind == "f")
    own, sizes = kernel.expected(arguments), magnitudes(kernel, arguments)
    exact = kernel.expected(change_floats(lambda array: array.astype(FINER[dtype]), arguments))
    got = kernel.results(arguments)  # last: the kernel might change its arguments
    if not same_choices(got, exact):
        exact = own  # a near tie may be decided as in either precision
    results = zip(assert_alike(got, own, kernel.op), exact, sizes, strict=True)
    for (name, array, other), right, size in results:
        error = distance(array, right)
        budget = 0.0 if array.dtype.kind == "i" else 2 * distance(other, right) + FEW * np.finfo(dtype).eps * size
        excess = np.where(error <= budget, -1, error - budget)  # infinite where one is NaN
        if (excess > -1).any():
            worst = np.unravel_index(np.argmax(excess), excess.shape)
            raise AssertionError(f"{name}{[int(i) for i in worst]}: got {array[worst]}, needs {right[worst]}")


def same_choices(got: Results, expected: Results) -> bool:
    """Return whether all arrays of integers are equal."""
    pairs = zip(got, expected, strict=False)
    return all(np.array_equal(array, other) for array, other in pairs if other.dtype.kind == "i")


def distance(array: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Return how far numbers are from the right ones: 0 where both are NaN, inf where one is no number."""
    finite = np.isfinite(array) & np.isfinite(right)
    gap = abs(np.where(finite, array, 0) - np.where(finite, right, 0))
    return np.where(finite, gap, np.where((array == right) | (np.isnan(array) & np.isnan(right)), 0, np.inf))


def change_floats(change: Callable[[NDArray[Any]], NDArray[Any]], arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with every array of floats changed."""
    return [change(a) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arguments]


def magnitudes(kernel: Kernel, arguments: Sequence[Any]) -> Sequence[Any]:
    """Return, for each result, how large its terms are: what one rounding error is measured by."""
    positive = change_floats(lambda array: np.nan_to_num(np.abs(array)), arguments)
    if kernel.op == "rope":  # cos and sin have signs
        return [2 * positive[3] * positive[0].max(initial=0)]
    if kernel.op == "top_k":  # log-probs are negative, and tokens are exact
        return [2 * positive[0].max(axis=1, keepdims=True) + np.log(positive[0].shape[1]), 0]
    if kernel.op != "verify_attention":
        return kernel.expected(positive)  # every other map here grows with its terms
    q_latent, q_rope, kv, _, _, _, scale = positive
    q = np.concatenate([q_latent, q_rope], axis=3)
    largest = scale * np.einsum("bnhx,bsx->bnhs", q, kv).max()  # an error of a score is a factor of a weight
    return [(1 + largest) * kv.max(), largest + 1 + np.log(kv.shape[1])]
