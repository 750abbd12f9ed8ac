"""The model's kernels past the edges of warps, tiles and blocks, at extreme values, and what they refuse."""

import inspect

import numpy as np
import pytest
from backends import pairs, results
from test_model_kernel_errors import errors

from kdtree import ShapeError
from kdtree.testing import Kernel
from kdtree.testing.budget import assert_within_budget

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape)


def experts(T, K, E):
    return np.int32([RNG.permutation(E)[:K] for _ in range(T)])


LARGE = {
    "embed": [(np.arange(0, 1000, 77), normal(1000, 513))],
    "rms_norm": [(normal(3, 7168), normal(7168), 1e-6), (np.zeros((1, 257)), normal(257), 1e-6)],
    "rope": [(normal(3, 33, 64), np.int32([0, 1, 131071]), 5e4 ** -(np.arange(32) / 32), 1.25, True)],
    "swiglu": [(np.linspace(-1000, 1000, 129)[None], normal(1, 129))],
    "route": [
        (normal(9, 384), normal(384), 8, 1, 1, True, 2.5, "sigmoid"),
        (normal(9, 256), normal(256), 33, 8, 4, True, 2.5, "sigmoid"),
        (normal(9, 33), normal(33), 33, 33, 33, False, 2.5, "sigmoid"),
        (normal(9, 129), normal(129), 6, 1, 1, False, 1.0, "softmax"),
        (np.array([[-np.inf, 0, np.inf, -1e30, 1e30]]), np.zeros(5), 5, 1, 1, True, 1.0, "sigmoid"),
        (np.array([[-np.inf, 0, -np.inf, 1, -1e30]]), np.zeros(5), 5, 1, 1, True, 1.0, "softmax"),
    ],
    "linear": [(normal(65, 300), normal(129, 300)), (normal(31, 127), normal(31, 127))],
    "absorb": [(normal(17, 3, 129), normal(3, 129, 257)), (normal(1, 2, 16), normal(2, 16, 128))],
    "unabsorb": [(normal(17, 3, 257), normal(3, 129, 257))],
    "moe": [
        (normal(70, 65), experts(70, 8, 33), normal(70, 8), *normal(2, 33, 64, 65) / 8, normal(33, 65, 64) / 8),
        (normal(40, 33), experts(40, 1, 1), normal(40, 1), *normal(2, 1, 129, 33) / 8, normal(1, 33, 129) / 8),
    ],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("op", "backend"), pairs(LARGE))
def test_large_sizes_and_extreme_values_are_within_the_error_budget(op, backend, dtype):
    names = inspect.signature(op.truth).parameters
    for arguments in LARGE[op.name]:
        given = [
            a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == float and name != "inv_freq_J" else a
            for name, a in zip(names, arguments, strict=True)
        ]
        assert_within_budget(Kernel.of(op.name, backend), given)


@pytest.mark.parametrize(("op", "backend"), pairs(["linear", "absorb", "unabsorb", "rms_norm", "moe"]))
def test_nan_in_a_row_reaches_no_other_row(op, backend):
    arguments = list(LARGE[op.name][0])
    expected = results(op, backend, arguments)[0]
    arguments[0] = arguments[0].copy()
    arguments[0][2] = np.nan
    got = results(op, backend, arguments)[0]
    assert np.isnan(got[2]).all()
    np.testing.assert_array_equal(np.delete(got, 2, axis=0), np.delete(expected, 2, axis=0))


def routing(**changes):
    arguments = {
        "logit_TE": np.zeros((2, 4)),
        "bias_E": np.zeros(4),
        "top_k": 2,
        "n_group": 2,
        "topk_group": 1,
        "normalise": True,
        "scale": 1.0,
        "scoring": "sigmoid",
    }
    return [*(arguments | changes).values()]


ONE = np.ones((2, 2))
REFUSED = [  # op, arguments, error
    ("embed", ([0, -1], ONE), ValueError),
    ("embed", ([0, 2], ONE), ValueError),
    ("embed", ([0.0, 1.0], ONE), ShapeError),
    ("rope", (np.ones((2, 2, 4)), np.arange(2), np.ones(3), 1.0, True), ShapeError),
    ("rope", (np.ones((2, 2, 4)), np.zeros(2), np.ones(2), 1.0, True), ShapeError),
    ("route", routing(scoring="linear"), ValueError),
    ("route", routing(n_group=3), ValueError),
    ("route", routing(topk_group=3), ValueError),
    ("route", routing(top_k=3), ValueError),
    ("route", routing(top_k=-1), ValueError),
    ("route", routing(logit_TE=np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]])), ValueError),
    ("route", routing(bias_E=np.zeros(3)), ShapeError),
    ("moe", (ONE, np.int32([[0, 1], [1, 1]]), ONE, *np.ones((3, 2, 2, 2))), ValueError),
    ("moe", (ONE, np.int32([[0, 1], [1, -7]]), ONE, *np.ones((3, 2, 2, 2))), ValueError),
]


@pytest.mark.parametrize(("op", "backend"), pairs(dict.fromkeys(name for name, _, _ in REFUSED)))
def test_what_the_truth_refuses_is_refused_in_its_words(op, backend):
    for name, arguments, error in REFUSED:
        if name == op.name and backend != "numba":
            truth, kernel = errors(op, backend, arguments)
            assert truth == kernel == (error, truth[1])


@pytest.mark.parametrize(("op", "backend"), pairs(["linear", "absorb", "unabsorb"]))
def test_two_precisions_count_as_the_finer(op, backend):
    x, weight = LARGE[op.name][0]
    mixed = results(op, backend, [x.astype(np.float32), weight])[0]
    assert mixed.dtype == np.float64
    np.testing.assert_array_equal(mixed, results(op, backend, [x.astype(np.float32).astype(float), weight])[0])
