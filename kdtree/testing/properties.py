"""What holds for every kernel, one function a property; each raises AssertionError where it does not hold.

A property takes a kernel, arguments that the op accepts, and hypothesis' `data` for what else it varies.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from .budget import assert_within_budget
from .kernel import Array, Kernel, fetched
from .layouts import layouts_of
from .model_strategies import ROUNDED
from .outputs import assert_bit_equal, outputs_start_as, require
from .strategies import Arguments

__all__ = [
    "PROPERTIES", "Property", "alone", "inputs", "layouts", "orders", "properties_of", "refusals",
    "repeats", "truth", "written",
]  # fmt: skip

Property: TypeAlias = Callable[[Kernel, Arguments, st.DataObject], None]
GARBAGE = (-(2**31), -7, -2, -1, 0, 1, 2, 3, 6, 40, 2**31 - 1)
NOT_NUMBERS = (np.nan, np.inf, -np.inf)


def truth(kernel: Kernel, arguments: Arguments, data: st.DataObject) -> None:
    """The results are the truth's: exact ones bit for bit, rounded ones within twice its error."""
    if kernel.op in ROUNDED:
        assert_within_budget(kernel, arguments)
    else:
        expected = kernel.expected(arguments)  # first: the kernel might change its arguments
        assert_bit_equal(kernel.results(arguments), expected, kernel.op)


def inputs(kernel: Kernel, arguments: Arguments, data: st.DataObject) -> None:
    """The arguments are as they were."""
    before = [np.array(argument) for argument in arguments]
    given = kernel.given(arguments)
    kernel.function(*given)
    for k, (name, array, was) in enumerate(zip(kernel.names, given, before, strict=False)):
        if k != kernel.changed:
            assert_bit_equal([fetched(array)], [was], name)


def repeats(kernel: Kernel, arguments: Arguments, data: st.DataObject) -> None:
    """Twice the same arguments give twice the same bits."""
    assert_bit_equal(kernel.results(arguments), kernel.results(arguments), kernel.op)


def written(kernel: Kernel, arguments: Arguments, data: st.DataObject) -> None:
    """Every element of the outputs is written, and nothing beside them."""
    expected = kernel.results(arguments)
    for poison in (0x5A, 0xFF):
        with outputs_start_as(poison, kernel):
            got = kernel.results(arguments)
        assert_bit_equal(got, expected, kernel.op)


def layouts(kernel: Kernel, arguments: Arguments, data: st.DataObject) -> None:
    """The memory layout of an argument does not matter."""
    lay = data.draw(st.sampled_from(layouts_of(kernel)))
    laid = [lay(kernel, a) if isinstance(a, np.ndarray) else a for a in arguments]

    def function(*given: Array) -> Any:
        return kernel.function(*[given[k] if k == kernel.changed else array for k, array in enumerate(laid)])

    read = replace(kernel, function=function)
    if kernel.op in ROUNDED and kernel.backend not in (None, "numpy"):
        assert_bit_equal(read.results(arguments), kernel.results(arguments), kernel.op)
    else:  # numpy's products, and others', choose the order of a sum by strides
        truth(read, arguments, data)


def refusals(kernel: Kernel, arguments: Arguments, data: st.DataObject) -> None:
    """With one number of an array replaced, it raises the truth's error in its words, or gives what the truth gives."""
    places = [k for k, a in enumerate(arguments) if isinstance(a, np.ndarray) and a.dtype.kind in "if" and a.size]
    if not places:
        return
    k = data.draw(st.sampled_from(places))
    array = arguments[k].copy()
    array.flat[data.draw(st.integers(0, array.size - 1))] = data.draw(
        st.sampled_from(GARBAGE if array.dtype.kind == "i" else NOT_NUMBERS)
    )
    changed = (*arguments[:k], array, *arguments[k + 1 :])
    expected, got = outcome(kernel.expected, changed), outcome(kernel.results, changed)
    if isinstance(expected, Exception) or isinstance(got, Exception):
        require(repr(got) == repr(expected), f"{kernel.op}: got {got!r}, needs {expected!r}")
    elif kernel.op not in ROUNDED:
        assert_bit_equal(got, expected, kernel.op)


def outcome(run: Callable[[Sequence[Any]], Any], arguments: Arguments) -> Any:
    """Return the results, or the error that bad input raises."""
    try:
        with np.errstate(all="ignore"):
            return run(arguments)
    except (ValueError, TypeError) as error:
        return error


def alone(kernel: Kernel, arguments: Arguments, data: st.DataObject) -> None:
    """A row, or a slot behind exactly the rows that it sees, has the bits that it has alone."""
    together = kernel.results(arguments)
    for part, place in (slots_alone if kernel.op == "verify_attention" else rows_alone)(kernel, arguments):
        assert_bit_equal(kernel.results(part), [array[place] for array in together], kernel.op)


def rows_alone(kernel: Kernel, arguments: Arguments) -> Iterator[tuple[Arguments, Any]]:
    """Yield the arguments of each row, and its place in the results."""
    of_row = [k for k, name in enumerate(kernel.names) if name.rpartition("_")[2].startswith("T")]
    for t in range(len(arguments[of_row[0]])):
        yield tuple(a[t : t + 1] if k in of_row else a for k, a in enumerate(arguments)), np.s_[t : t + 1]


def slots_alone(kernel: Kernel, arguments: Arguments) -> Iterator[tuple[Arguments, Any]]:
    """Yield the arguments of each slot of verify_attention, and its place in the results."""
    for b, n in enumerate(arguments[5]):
        for i in range(n):
            yield slot_alone(arguments, b, i), np.s_[b : b + 1, i : i + 1]


def slot_alone(arguments: Arguments, b: int, i: int) -> Arguments:
    """Return the arguments of verify_attention for one slot behind exactly the rows that it sees."""
    q_latent, q_rope, kv, prefix_len_B, visible_BNN, node_count_B, scale = arguments
    P, n = prefix_len_B[b], node_count_B[b]
    seen = np.append(np.arange(P), P + np.flatnonzero(visible_BNN[b, i, :n]))
    rows = seen if len(seen) else np.array([P])  # nothing to see: one row, hidden
    return (
        *(q[b : b + 1, i : i + 1] for q in (q_latent, q_rope)),
        kv[b : b + 1, rows],
        np.array([len(rows) - 1], np.int32),
        np.full((1, 1, 1), len(seen) > 0),
        np.ones(1, np.int32),
        scale,
    )


def orders(kernel: Kernel, arguments: Arguments, data: st.DataObject) -> None:
    """The order of blocks, and of threads between two barriers, does not matter."""
    bound: Any = kernel.function
    device = copy(bound.args[0])
    device.seed = data.draw(st.integers(1, 2**64 - 1))
    permuted = replace(kernel, function=partial(bound.func, device))
    try:
        assert_bit_equal(permuted.results(arguments), kernel.results(arguments), kernel.op)
    except AssertionError as error:
        raise AssertionError(f"with KDTREE_HOST_SEED={device.seed}, {error}") from None


PROPERTIES: tuple[Property, ...] = (truth, inputs, repeats, written, layouts, refusals, alone, orders)


def properties_of(kernel: Kernel) -> tuple[Property, ...]:
    """Return the properties that a kernel is held to: a function of the user's promises less than a backend."""
    promised: dict[Property, bool] = {
        written: kernel.library in ("numpy", "cupy"),
        refusals: kernel.backend is not None,
        alone: kernel.backend is not None and kernel.op in ROUNDED,
        orders: kernel.backend == "host",
    }
    return tuple(property_ for property_ in PROPERTIES if promised.get(property_, True))
