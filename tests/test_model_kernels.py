"""The model's kernels: within the error budget of each op, and to the same bits whatever stands beside a row."""

import inspect

import numpy as np
import pytest
from backends import assert_bit_equal, given_to, laid_out, outputs_start_as, pairs, taken_from
from backends import results as results_on
from golden import DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from model_fixtures import random_weights, tiny_config
from model_strategies import MODEL_ARGUMENTS
from strategies import parent_batches
from test_golden_model import golden_tree
from test_transformer import VARIANTS, batch_of

from kdtree import DraftTree, kdtr
from kdtree.loading import load_model
from kdtree.reference import model_ops
from kdtree.target import Target, model_namespace

NUMBA = model_namespace("numba")
EVERY_KERNEL = pytest.mark.parametrize(("op", "backend"), pairs(MODEL_ARGUMENTS))
FEW = 6  # roundings
FINER = {np.dtype(np.float32): np.float64, np.dtype(np.float64): np.longdouble}


def results(function, arguments):
    returned = function(*arguments)
    return list(returned) if isinstance(returned, tuple) else [returned]


def change_floats(change, arguments):
    """Return the arguments with every array of floats changed."""
    return [change(a) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arguments]


def magnitudes(op, arguments):
    """Return, for each result, how large its terms are: what one rounding error is measured by."""
    positive = change_floats(lambda array: np.nan_to_num(np.abs(array)), arguments)
    if op.name == "rope":  # cos and sin have signs
        return [2 * positive[3] * positive[0].max(initial=0)]
    if op.name == "top_k":  # log-probs are negative, and tokens are exact
        return [2 * positive[0].max(axis=1, keepdims=True) + np.log(positive[0].shape[1]), 0]
    if op.name != "verify_attention":
        return results(op, positive)  # every other map here grows with its terms
    q_latent, q_rope, kv, _, _, _, scale = positive
    q = np.concatenate([q_latent, q_rope], axis=3)
    largest = scale * np.einsum("bnhx,bsx->bnhs", q, kv).max()  # an error of a score is a factor of a weight
    return [(1 + largest) * kv.max(), largest + 1 + np.log(kv.shape[1])]


def assert_within_budget(op, backend, arguments):
    """Hold a kernel to twice the error of the truth in the same precision, and a few roundings; integers exactly."""
    dtype = next(a.dtype for a in arguments if isinstance(a, np.ndarray) and a.dtype.kind == "f")
    got, own = results_on(op, backend, arguments), results(op, arguments)
    exact = results(op, change_floats(lambda array: array.astype(FINER[dtype]), arguments))
    for array, other, right, size in zip(got, own, exact, magnitudes(op, arguments), strict=True):
        assert (array.dtype, array.shape) == (other.dtype, other.shape)
        if array.dtype.kind == "i":
            np.testing.assert_array_equal(array, other)
            continue
        where = np.isfinite(right)
        np.testing.assert_array_equal(array[~where], right[~where])
        error = np.abs(np.where(where, array - np.where(where, right, 0), 0))
        budget = 2 * np.abs(np.where(where, other - np.where(where, right, 0), 0)) + FEW * np.finfo(dtype).eps * size
        if (error > budget).any():
            worst = np.unravel_index(np.argmax(error - budget), error.shape)
            pytest.fail(f"{op.name}{[int(i) for i in worst]}: got {array[worst]!r}, needs {right[worst]!r}")


@EVERY_KERNEL
@given(data=st.data())
def test_a_kernel_is_within_twice_the_error_of_the_truth(op, backend, data):
    assert_within_budget(op, backend, data.draw(MODEL_ARGUMENTS[op.name]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.1, 30.0])
@pytest.mark.parametrize(("op", "backend"), pairs(["verify_attention"]))
def test_a_long_prefix_is_within_the_error_budget(op, backend, dtype, scale):
    """More scores than are formed at once, and some too small for exp."""
    rng = np.random.default_rng(0)
    q_latent, q_rope, kv = (
        rng.normal(size=shape).astype(dtype) for shape in ((1, 9, 4, 32), (1, 9, 4, 8), (1, 8009, 40))
    )
    visible_BNN = np.tri(9, dtype=bool)[None]
    arguments = (q_latent, q_rope, kv, np.int32([8000]), visible_BNN, np.int32([9]), scale)
    assert_within_budget(op, backend, arguments)


def of_rows(function):
    """Return the place of each argument that has one entry a row."""
    names = inspect.signature(function).parameters
    return [k for k, name in enumerate(names) if name.rpartition("_")[2].startswith("T")]


BY_ROW = pairs([name for name in model_ops.__all__ if name != "verify_attention"], truth=True)
BY_ROW = [pair for pair in BY_ROW if pair.values[1] != "numpy" or "numba" not in pair.values[0].backends()]


@pytest.mark.parametrize(("op", "backend"), BY_ROW)
@given(data=st.data())
def test_a_row_has_the_bits_that_it_has_alone(op, backend, data):
    arguments = data.draw(MODEL_ARGUMENTS[op.name])
    together, of_row = results_on(op, backend, arguments), of_rows(op.truth)
    for t in range(len(arguments[of_row[0]])):
        alone = [a[t : t + 1] if k in of_row else a for k, a in enumerate(arguments)]
        assert_bit_equal(results_on(op, backend, alone), [array[t : t + 1] for array in together])


@given(MODEL_ARGUMENTS["linear"])
def test_an_output_of_linear_has_the_bits_that_it_has_alone(arguments):
    (x_TI, weight_OI), y_TO = arguments, NUMBA.linear(*arguments)
    for o in range(len(weight_OI)):
        assert_bit_equal([NUMBA.linear(x_TI, weight_OI[o : o + 1])], [y_TO[:, o : o + 1]])


def slot_alone(arguments, b, i):
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


@pytest.mark.parametrize(("op", "backend"), pairs(["verify_attention"]))
@given(arguments=MODEL_ARGUMENTS["verify_attention"])
def test_a_slot_has_the_bits_that_it_has_alone_behind_what_it_sees(op, backend, arguments):
    """So other slots, other batch rows, the capacity of the cache and rows that are not seen do not matter."""
    together = results_on(op, backend, arguments)
    for b, n in enumerate(arguments[5]):
        for i in range(n):
            alone = results_on(op, backend, slot_alone(arguments, b, i))
            assert_bit_equal(alone, [array[b : b + 1, i : i + 1] for array in together])


@pytest.mark.parametrize(("op", "backend"), pairs(["verify_attention"]))
@given(arguments=MODEL_ARGUMENTS["verify_attention"])
def test_a_slot_that_sees_nothing_weighs_nothing(op, backend, arguments):
    *_, prefix_len_B, visible_BNN, node_count_B, _ = arguments
    real_BN = np.arange(visible_BNN.shape[1]) < node_count_B[:, None]
    seen_BN = prefix_len_B[:, None] + (visible_BNN & real_BN[:, None]).sum(axis=2)
    empty_BN = (seen_BN == 0) | ~real_BN
    latent_BNHC, lse_BNH = results_on(op, backend, arguments)
    assert (latent_BNHC[empty_BN] == 0).all()
    assert np.isneginf(lse_BNH[empty_BN]).all()
    assert np.isfinite(latent_BNHC).all()  # the NaN in padded slots came to nobody
    assert np.isfinite(lse_BNH[~empty_BN]).all()


@EVERY_KERNEL
@given(data=st.data())
def test_a_kernel_of_the_model_writes_every_element_and_changes_no_input(op, backend, data):
    arguments = data.draw(MODEL_ARGUMENTS[op.name])
    before = [np.array(argument) for argument in arguments]
    inputs = given_to(op, backend, arguments)
    expected = results_on(op, backend, inputs)
    for poison in (0x5A, 0xFF):
        with outputs_start_as(poison, backend):
            assert_bit_equal(results_on(op, backend, inputs), expected)
    assert_bit_equal([np.asarray(taken_from(backend, argument)) for argument in inputs], before)


@EVERY_KERNEL
@pytest.mark.parametrize("layout", ["strided", "fortran", "read-only"])
@settings(max_examples=15)
@given(data=st.data())
def test_the_layout_of_an_input_of_a_model_kernel_does_not_matter(op, backend, layout, data):
    arguments = data.draw(MODEL_ARGUMENTS[op.name])
    other = laid_out(op, backend, layout, arguments)
    assert_bit_equal(results_on(op, backend, other), results_on(op, backend, arguments))


def test_experts_are_added_in_the_order_of_their_index():
    one = np.ones((3, 1, 1))
    weight_TK = np.array([[1.0, 2.0**60, -(2.0**60)]])  # of experts 2, 0 and 1: any other order loses the 1
    for namespace in (model_ops, NUMBA):
        y_TD = namespace.moe(np.ones((1, 1)), np.int32([[2, 0, 1]]), weight_TK, one, one, one)
        assert y_TD[0, 0] == NUMBA.swiglu(np.ones((1, 1)), np.ones((1, 1)))[0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
@settings(max_examples=4)
@given(batch=parent_batches(max_batch=2, max_nodes=33), seed=st.integers(0, 99))
def test_a_tree_on_numba_has_the_logits_of_its_slots_one_by_one_bit_for_bit(changes, dtype, batch, seed):
    """So batched verification on numba is plain decoding on numba, in every variant of the model."""
    weights = random_weights(tiny_config(**changes), seed, dtype)
    trees = [DraftTree.from_parents(p[:n], token_N=np.arange(n) * 7 % 61) for p, n in zip(*batch, strict=True)]
    runs = []
    for exact in (False, True):
        target = Target(weights, backend="numba", exact=exact)
        cache = target.new_cache(len(trees))
        for b in range(len(trees)):
            target.read(cache, b, (np.arange(5 + 70 * b) * 5 % 61).astype(np.int32))
        runs.append((*target.verify(cache, batch_of(trees)), cache.kv_YBSX))
    assert_bit_equal(*runs)


@pytest.mark.parametrize("name", ["full", "k26"])
@pytest.mark.parametrize(("suffix", "dtype", "gate"), [("f64", np.float64, 1e-10), ("f32", np.float32, 2e-4)])
def test_the_golden_model_comes_out_on_numba(name, suffix, dtype, gate):
    folder = DATA / "golden" / "hf" / name
    golden = kdtr.load(folder / "golden.kdtr").tensors
    target = Target(load_model(folder, dtype), backend="numba")
    cache = target.new_cache(1)
    hidden_YTD, rows_YPX = target.read(cache, 0, golden["prompt"]), cache.kv_YBSX[:, 0, : len(golden["prompt"])]
    logit_NV = target.verify(cache, batch_of([golden_tree(golden)])).logit_BNV[0]
    for got, expected in (
        (hidden_YTD, "hidden"),
        (NUMBA.linear(hidden_YTD[-1], target.weights.lm_head_VD), "logits"),
        (rows_YPX[:, :, : target.config.kv_lora_rank], "cache_c"),
        (rows_YPX[:, :, target.config.kv_lora_rank :], "cache_r"),
        (logit_NV, "tree"),
    ):
        np.testing.assert_allclose(got, golden[f"{expected}_{suffix}"], rtol=0, atol=gate, err_msg=expected)
