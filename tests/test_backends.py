"""Every op on every fast backend, held to the truth: add a kernel file and it is tested here."""

import contextlib
import inspect

import numpy as np
import pytest
from backends import pairs, results
from hypothesis import given, settings
from hypothesis import strategies as st

from kdtree import ShapeError, TreeError, ops
from kdtree.testing import ARGUMENTS, EXACT, ROUNDED, Kernel, properties

READERS_OF_PARENTS = ("visibility", "visibility_packed", "visibility_intervals", "retrieve")
GOOD_ONES = [name for name in EXACT if name != "compact_cache"]
EVERY_KERNEL = pytest.mark.parametrize(("op", "backend"), pairs(ARGUMENTS))
TRUTH_AND_KERNELS = pytest.mark.parametrize(("op", "backend"), pairs(ARGUMENTS, truth=True))
EXACT_ONES = pytest.mark.parametrize(("op", "backend"), pairs(GOOD_ONES))
TRUTH_AND_EXACT_ONES = pytest.mark.parametrize(("op", "backend"), pairs(GOOD_ONES, truth=True))
ALONE = [  # the truth too, where numba runs it
    pair for pair in pairs(ROUNDED, truth=True) if pair.values[1] != "numpy" or "numba" not in pair.values[0].backends()
]


def check(property_, op, backend, data):
    property_(Kernel.of(op.name, backend), data.draw(ARGUMENTS[op.name]), data)


@EVERY_KERNEL
def test_a_kernel_has_the_signature_of_the_truth(op, backend):
    kernel, truth = inspect.signature(op.on(backend)), inspect.signature(op.truth)
    assert str(kernel) == str(truth)


@EVERY_KERNEL
@given(data=st.data())
def test_a_kernel_gives_what_the_truth_gives(op, backend, data):
    """Exact results bit for bit, rounded ones within twice the error of the truth."""
    check(properties.truth, op, backend, data)


@EVERY_KERNEL
@settings(max_examples=1)
@given(data=st.data())
def test_a_result_has_the_type_of_the_truths(op, backend, data):
    arguments = data.draw(ARGUMENTS[op.name])
    assert type(results(op, backend, arguments)) is type(results(op, "numpy", arguments))


@EVERY_KERNEL
@given(data=st.data())
def test_a_kernel_gives_the_same_bits_twice(op, backend, data):
    check(properties.repeats, op, backend, data)


@EVERY_KERNEL
@given(data=st.data())
def test_a_kernel_writes_every_element_of_its_outputs_and_nothing_beside_them(op, backend, data):
    check(properties.written, op, backend, data)


@TRUTH_AND_KERNELS
@given(data=st.data())
def test_inputs_are_not_changed(op, backend, data):
    check(properties.inputs, op, backend, data)


@TRUTH_AND_KERNELS
@given(data=st.data())
def test_the_layout_of_an_input_does_not_matter(op, backend, data):
    check(properties.layouts, op, backend, data)


@EVERY_KERNEL
@given(data=st.data())
def test_a_wrong_number_is_the_error_of_the_truth(op, backend, data):
    check(properties.refusals, op, backend, data)


@pytest.mark.parametrize(("op", "backend"), ALONE)
@given(data=st.data())
def test_a_row_has_the_bits_that_it_has_alone(op, backend, data):
    """A slot of attention has them behind what it sees: no other slot, sequence or row of the cache matters."""
    check(properties.alone, op, backend, data)


@pytest.mark.parametrize(("op", "backend"), [pair for pair in pairs(ARGUMENTS) if pair.values[1] == "host"])
@given(data=st.data())
def test_the_order_of_threads_and_blocks_does_not_matter(op, backend, data):
    check(properties.orders, op, backend, data)


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
        for name in READERS_OF_PARENTS
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
        for op in READERS_OF_PARENTS
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


@EXACT_ONES
def test_bad_input_is_the_error_of_the_truth_and_names_the_argument(op, backend):
    for name, argument, value, error in BAD_VALUES:
        if name == op.name:
            messages = set()
            for place in ("numpy", backend):
                with pytest.raises(error, match=r"got .*needs ") as caught:
                    results(op, place, {**GOOD[name], argument: value}.values())
                assert type(caught.value) is error
                assert argument in str(caught.value)
                messages.add(str(caught.value))
            assert len(messages) == 1


@TRUTH_AND_EXACT_ONES
def test_the_arguments_that_the_bad_ones_are_made_from_are_good(op, backend):
    results(op, backend, GOOD[op.name].values())


def test_every_op_has_a_strategy_and_exact_ones_have_good_arguments():
    assert list(GOOD) == GOOD_ONES
    assert set(ARGUMENTS) == set(ops.all_ops())


@pytest.mark.parametrize(("op", "backend"), pairs(["accept_greedy"], truth=True))
def test_an_empty_batch_of_no_slots_is_walked(op, backend):
    none = np.zeros((0, 0), int)
    assert results(op, backend, [none, none, none, np.zeros(0, int), none])[0].shape == (0, 0)


@TRUTH_AND_EXACT_ONES
def test_an_empty_batch_gives_empty_results(op, backend):
    empty = [value[:0] if isinstance(value, np.ndarray) else value for value in GOOD[op.name].values()]
    assert all(len(array) == 0 for array in results(op, backend, empty))


@pytest.mark.parametrize(("op", "backend"), pairs(READERS_OF_PARENTS, truth=True))
@given(parents=st.lists(st.integers(-2, 6), max_size=6), count=st.integers(-1, 7))
def test_any_parents_are_a_tree_or_a_tree_error(op, backend, parents, count):
    """Cycles, parents after children, slots out of range: nothing else comes out, and nothing hangs."""
    in_order = all(0 <= parent < slot for slot, parent in enumerate(parents[:count]) if slot)
    is_tree = 1 <= count <= len(parents) and parents[0] == -1 and in_order
    with contextlib.nullcontext() if is_tree else pytest.raises(TreeError):
        results(op, backend, [np.array([parents], int), [count]])
