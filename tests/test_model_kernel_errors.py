"""The model's kernels refuse what the truth refuses, with its words."""

import numpy as np
import pytest
from backends import pairs
from backends import results as results_on
from hypothesis import given, settings
from hypothesis import strategies as st

from kdtree import ShapeError, TreeError
from kdtree.testing import ROUNDED


def errors(op, backend, arguments):
    """Return the error of the truth and of a backend, as its class and message."""
    for place in ("numpy", backend):
        with pytest.raises(ValueError) as caught:
            results_on(op, place, arguments)
        yield type(caught.value), str(caught.value)


@pytest.mark.parametrize(("op", "backend"), pairs(ROUNDED))
@settings(max_examples=15)
@given(data=st.data())
def test_a_wrong_rank_is_the_error_of_the_truth(op, backend, data):
    arguments = list(data.draw(ROUNDED[op.name]))
    k = data.draw(st.sampled_from([k for k, a in enumerate(arguments) if isinstance(a, np.ndarray)]))
    arguments[k] = arguments[k][None]
    truth, kernel = errors(op, backend, arguments)
    assert truth == kernel == (ShapeError, truth[1])


ONES = {  # the arrays of floats, of size 2
    "linear": "TI OI",
    "absorb": "THU HUC",
    "unabsorb": "THC HMC",
    "moe": "TD TK TK EFD EFD EDF",
    "verify_attention": "BNHC BNHR BSX",
}
WRONG = [  # op, place of the argument, value, error
    ("linear", 1, np.ones((2, 3)), ShapeError),
    ("absorb", 1, np.ones((3, 2, 2)), ShapeError),
    ("unabsorb", 1, np.ones((2, 2, 3)), ShapeError),
    ("moe", 1, np.ones((2, 2)), ShapeError),
    ("moe", 2, np.ones((2, 3)), ShapeError),
    ("moe", 5, np.ones((2, 3, 2)), ShapeError),
    ("verify_attention", 2, np.ones((2, 2, 5)), ShapeError),
    ("verify_attention", 2, np.ones((2, 1, 4)), ShapeError),
    ("verify_attention", 3, np.int32([0, 1]), ShapeError),
    ("verify_attention", 3, np.int32([-1, 0]), ShapeError),
    ("verify_attention", 3, np.zeros(2), ShapeError),
    ("verify_attention", 5, np.full(2, 2.0), ShapeError),
    ("verify_attention", 4, np.ones((2, 2, 2)), ShapeError),
    ("verify_attention", 5, np.int32([2, 3]), TreeError),
    ("verify_attention", 5, np.int32([0, 1]), TreeError),
]


TAKE_HALF = ("verify_attention-host", "verify_attention-cuda")


def ones(name, dtype):
    """Return arguments that fit."""
    arguments = [np.ones([4 if letter == "X" else 2 for letter in letters], dtype) for letters in ONES[name].split()]
    if name == "moe":
        arguments[1] = np.int32([[0, 1], [1, 0]])
    if name == "verify_attention":
        arguments += [np.zeros(2, np.int32), np.ones((2, 2, 2), bool), np.full(2, 2, np.int32), 1.0]
    return arguments


@pytest.mark.parametrize(("op", "backend"), pairs(ONES))
def test_a_wrong_argument_is_the_error_of_the_truth(op, backend):
    for name, k, value, error in WRONG:
        if name == op.name:
            arguments = ones(name, np.float64)
            results_on(op, backend, arguments)
            arguments[k] = value
            truth, kernel = errors(op, backend, arguments)
            assert truth == kernel == (error, truth[1])


@pytest.mark.parametrize("expert", [-1, 2])
@pytest.mark.parametrize(("op", "backend"), pairs(["moe"]))
def test_an_expert_that_is_not_there_is_refused_before_memory_is_read(op, backend, expert):
    arguments = ones("moe", np.float64)
    arguments[1][1, 0] = expert
    with pytest.raises(ValueError, match=f"expert_TK: got {expert} at row 1, needs 0 to 1"):
        results_on(op, backend, arguments)


@pytest.mark.parametrize(("op", "backend"), [pair for pair in pairs(ONES) if pair.id not in TAKE_HALF])
def test_half_precision_is_refused_by_the_name_of_the_argument(op, backend):
    with pytest.raises(ShapeError, match="got dtype float16, needs float32 or float64"):
        results_on(op, backend, ones(op.name, np.float16))
