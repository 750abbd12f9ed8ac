"""Every op with exact results, on every fast backend, held to the truth: add a kernel file and it is tested here."""

import contextlib
import inspect
from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_strategies import MODEL_ARGUMENTS
from strategies import ARGUMENTS

from kdtree import ShapeError, TreeError, ops

EXACT_OPS = {name: ops.all_ops()[name] for name in ARGUMENTS}
PAIRS = [
    pytest.param(op, backend, id=f"{name}-{backend}", marks=[pytest.mark.gpu] if backend == "cuda" else [])
    for name, op in EXACT_OPS.items()
    for backend in op.backends()
    if backend != "numpy"
]
EVERY_KERNEL = pytest.mark.parametrize(("op", "backend"), PAIRS)


def results(op, backend, arguments):
    """Return what the op returns, as a tuple of arrays."""
    returned = op.on(backend)(*arguments)
    return returned if isinstance(returned, tuple) else (returned,)


def assert_bit_equal(got, expected):
    assert len(got) == len(expected)
    for array, other in zip(got, expected, strict=True):
        assert array.dtype == other.dtype
        np.testing.assert_array_equal(array, other)


@EVERY_KERNEL
def test_a_kernel_has_the_signature_of_the_truth(op, backend):
    kernel, truth = inspect.signature(op.on(backend)), inspect.signature(op.truth)
    assert str(kernel) == str(truth)


@EVERY_KERNEL
@given(data=st.data())
def test_a_kernel_equals_the_truth(op, backend, data):
    arguments = data.draw(ARGUMENTS[op.name])
    got, expected = results(op, backend, arguments), results(op, "numpy", arguments)
    assert type(got) is type(expected)
    assert_bit_equal(got, expected)


@EVERY_KERNEL
@given(data=st.data())
def test_a_kernel_gives_the_same_bits_twice(op, backend, data):
    arguments = data.draw(ARGUMENTS[op.name])
    assert_bit_equal(results(op, backend, arguments), results(op, backend, arguments))


def poisoned(poison, shape, dtype=float):
    array = np.zeros(shape, dtype)
    array.view(np.uint8).fill(poison)
    return array


@EVERY_KERNEL
@given(data=st.data())
def test_a_kernel_writes_every_element_of_its_outputs(op, backend, data):
    arguments = data.draw(ARGUMENTS[op.name])
    expected = results(op, "numpy", arguments)
    for poison in (0x5A, 0xFF):
        with mock.patch.object(np, "empty", partial(poisoned, poison)):
            got = results(op, backend, arguments)
        assert_bit_equal(got, expected)


@pytest.mark.parametrize("op", EXACT_OPS.values(), ids=EXACT_OPS)
@given(data=st.data())
def test_inputs_are_not_changed(op, data):
    arguments = data.draw(ARGUMENTS[op.name])
    before = [np.array(argument) for argument in arguments]
    for backend in op.backends():
        if backend != "cuda":
            op.on(backend)(*arguments)
    assert_bit_equal([np.asarray(argument) for argument in arguments], before)


def strided(array):
    """Return an equal array whose memory runs backwards with gaps."""
    wide = np.zeros([2 * size for size in array.shape], array.dtype)
    view = wide[tuple(slice(None, None, -2) for _ in array.shape)]
    view[...] = array
    return view


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


LAYOUTS = {
    "strided": strided,
    "fortran": np.asfortranarray,
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "read-only": read_only,
    "int64": lambda array: array.astype(np.int64) if array.dtype.kind == "i" else array,
    "a list": lambda array: array.tolist() if array.dtype.kind == "i" and array.size else array,
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("op", EXACT_OPS.values(), ids=EXACT_OPS)
@given(data=st.data())
def test_the_layout_of_an_input_does_not_matter(op, layout, data):
    arguments = data.draw(ARGUMENTS[op.name])
    expected = results(op, "numpy", arguments)
    laid_out = [layout(a) if isinstance(a, np.ndarray) else a for a in arguments]
    for backend in op.backends():
        if backend != "cuda":
            assert_bit_equal(results(op, backend, laid_out), expected)


GOOD = {
    "tree_build": {
        "root_token_B": np.int32([0, 1]),
        "top_logprob_BLK": np.float32([[[-1, -2, -3]] * 2] * 2),
        "top_token_BLK": np.arange(12).reshape(2, 2, 3),
        "budget": 4,
        "pad_token": 0,
    },
    **{
        name: {"parent_BN": np.array([[-1, 0, 0], [-1, 0, -1]]), "node_count_B": np.array([3, 2])}
        for name in ("visibility", "visibility_packed", "visibility_intervals", "retrieve")
    },
    "accept_greedy": {
        "token_BN": np.zeros((2, 3), int),
        "first_child_BN": np.array([[1, -1, -1], [1, -1, -1]]),
        "next_sibling_BN": np.array([[-1, 2, -1], [-1, -1, -1]]),
        "node_count_B": np.array([3, 2]),
        "target_token_BN": np.zeros((2, 3), int),
    },
    "int4_dequant": {
        "packed_OW": np.zeros((2, 5), int),
        "scale_OG": np.ones((2, 2), np.float32),
        "in_features": 40,
        "rounded": True,
    },
}

BAD_VALUES = [  # op, argument, wrong value, error
    ("tree_build", "root_token_B", np.int32([0]), ShapeError),
    ("tree_build", "root_token_B", 7, ShapeError),
    ("tree_build", "root_token_B", [[0], [1, 2]], ShapeError),
    ("tree_build", "root_token_B", np.float32([0, 1]), ShapeError),
    ("tree_build", "root_token_B", [0, -1], ValueError),
    ("tree_build", "root_token_B", [0, 2**31], ValueError),
    ("tree_build", "top_token_BLK", np.full((2, 2, 3), -1), ValueError),
    ("tree_build", "top_token_BLK", np.full((2, 2, 3), 2**31), ValueError),
    ("tree_build", "top_token_BLK", np.full((2, 2, 3), 2**63, np.uint64), ValueError),
    ("tree_build", "top_token_BLK", np.zeros((2, 2, 4), int), ShapeError),
    ("tree_build", "top_logprob_BLK", np.zeros((2, 2, 3), np.float16), ShapeError),
    ("tree_build", "top_logprob_BLK", np.zeros((2, 2, 3), int), ShapeError),
    ("tree_build", "top_logprob_BLK", np.zeros((2, 3), np.float32), ShapeError),
    ("tree_build", "top_logprob_BLK", np.float32([[[-1, -2, -3]] * 2, [[-1, -2, np.nan]] * 2]), ValueError),
    ("tree_build", "top_logprob_BLK", np.float32([[[-1, -2, -3]] * 2, [[np.inf, -2, -3]] * 2]), ValueError),
    ("tree_build", "top_logprob_BLK", np.float32([[[np.nan, np.nan, np.nan]] * 2] * 2), ValueError),
    ("tree_build", "top_logprob_BLK", np.float32([[[-2, -1, -3]] * 2] * 2), ValueError),
    ("tree_build", "top_logprob_BLK", np.float32([[[-np.inf, -2, -3]] * 2] * 2), ValueError),
    ("tree_build", "budget", -1, ValueError),
    ("tree_build", "budget", 2**31, ValueError),
    ("tree_build", "budget", 2.5, TypeError),
    ("tree_build", "pad_token", -1, ValueError),
    ("tree_build", "pad_token", 2**31, ValueError),
    *[
        (op, argument, value, error)
        for op in ("visibility", "visibility_packed", "visibility_intervals", "retrieve")
        for argument, value, error in [
            ("parent_BN", [-1, 0, 0], ShapeError),
            ("parent_BN", [[-1.0, 0, 0]] * 2, ShapeError),
            ("parent_BN", [[-1, 0, 0]], ShapeError),
            ("parent_BN", [[0, 0, 0]] * 2, TreeError),
            ("parent_BN", [[-1, 1, 0]] * 2, TreeError),
            ("parent_BN", [[-1, 2, 1]] * 2, TreeError),
            ("parent_BN", [[-1, -1, 0]] * 2, TreeError),
            ("parent_BN", [[-1, 0, 3]] * 2, TreeError),
            ("parent_BN", [[-1, 0, -2]] * 2, TreeError),
            ("node_count_B", [3, 4], TreeError),
            ("node_count_B", [3, 0], TreeError),
            ("node_count_B", [3, -1], TreeError),
            ("node_count_B", [3], ShapeError),
            ("node_count_B", [True, True], ShapeError),
        ]
    ],
    ("accept_greedy", "token_BN", np.zeros((2, 4), int), ShapeError),
    ("accept_greedy", "target_token_BN", np.zeros((2, 2), int), ShapeError),
    ("accept_greedy", "target_token_BN", np.zeros((2, 3)), ShapeError),
    ("accept_greedy", "node_count_B", [3, 0], TreeError),
    ("accept_greedy", "first_child_BN", [[1, -1, -1], [0, -1, -1]], TreeError),
    ("accept_greedy", "next_sibling_BN", [[-1, 2, 1], [-1, -1, -1]], TreeError),
    ("int4_dequant", "packed_OW", np.zeros((2, 4), int), ShapeError),
    ("int4_dequant", "packed_OW", np.zeros((2, 5)), ShapeError),
    ("int4_dequant", "scale_OG", np.ones((2, 1), np.float32), ShapeError),
    ("int4_dequant", "scale_OG", np.ones((2, 2)), ShapeError),
    ("int4_dequant", "scale_OG", np.float32([[1, 1], [1, np.nan]]), ValueError),
    ("int4_dequant", "in_features", -1, ValueError),
]


@pytest.mark.parametrize(("name", "argument", "value", "error"), BAD_VALUES)
def test_bad_input_is_the_same_error_on_every_backend_and_names_the_argument(name, argument, value, error):
    op, messages = ops.all_ops()[name], set()
    for backend in op.backends():
        if backend != "cuda":
            with pytest.raises(error, match=r"got .*needs ") as caught:
                op.on(backend)(**{**GOOD[name], argument: value})
            assert type(caught.value) is error
            assert argument in str(caught.value)
            messages.add(str(caught.value))
    assert len(messages) == 1


@pytest.mark.parametrize("name", GOOD)
def test_the_arguments_that_the_bad_ones_are_made_from_are_good(name):
    for backend in ops.all_ops()[name].backends():
        if backend != "cuda":
            ops.all_ops()[name].on(backend)(**GOOD[name])


def test_every_op_has_a_strategy_and_good_arguments():
    assert set(ARGUMENTS) == set(GOOD)
    assert {*ARGUMENTS, *MODEL_ARGUMENTS, "compact_cache"} == set(ops.all_ops())


def test_an_empty_batch_of_no_slots_is_walked():
    none = np.zeros((0, 0), int)
    for backend in ("numpy", "numba"):
        assert ops.accept_greedy.on(backend)(none, none, none, np.zeros(0, int), none).path_BN.shape == (0, 0)


@pytest.mark.parametrize("op", EXACT_OPS.values(), ids=EXACT_OPS)
def test_an_empty_batch_gives_empty_results(op):
    empty = [value[:0] if isinstance(value, np.ndarray) else value for value in GOOD[op.name].values()]
    for backend in op.backends():
        if backend != "cuda":
            assert all(len(array) == 0 for array in results(op, backend, empty))


READERS_OF_PARENTS = ("visibility", "visibility_packed", "visibility_intervals", "retrieve")


@pytest.mark.parametrize("name", READERS_OF_PARENTS)
@given(parents=st.lists(st.integers(-2, 6), min_size=1, max_size=6), count=st.integers(-1, 7))
def test_any_parents_are_a_tree_or_a_tree_error(name, parents, count):
    """Cycles, parents after children, slots out of range: nothing else comes out, and nothing hangs."""
    in_order = all(0 <= parent < slot for slot, parent in enumerate(parents[:count]) if slot)
    is_tree = 1 <= count <= len(parents) and parents[0] == -1 and in_order
    op = ops.all_ops()[name]
    for backend in op.backends():
        if backend != "cuda":
            with contextlib.nullcontext() if is_tree else pytest.raises(TreeError):
                op.on(backend)([parents], [count])
