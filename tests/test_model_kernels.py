"""The model's kernels: within the error budget of each op, and to the same bits whatever stands beside a row."""

from dataclasses import replace

import numpy as np
import pytest
from backends import pairs, results
from golden import DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from model_fixtures import random_weights, tiny_config
from test_golden_model import golden_tree
from test_transformer import VARIANTS, batch_of

from kdtree import DraftTree, kdtr, ops
from kdtree.loading import load_model
from kdtree.reference import model_ops
from kdtree.target import Target, model_namespace
from kdtree.testing import EXACT, ROUNDED, Kernel
from kdtree.testing.budget import assert_within_budget
from kdtree.testing.outputs import assert_bit_equal
from kdtree.testing.strategies import parent_batches

NUMBA = model_namespace("numba")


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
    assert_within_budget(Kernel.of(op.name, backend), arguments)


@given(ROUNDED["linear"])
def test_an_output_of_linear_has_the_bits_that_it_has_alone(arguments):
    (x_TI, weight_OI), y_TO = arguments, NUMBA.linear(*arguments)
    for o in range(len(weight_OI)):
        assert_bit_equal([NUMBA.linear(x_TI, weight_OI[o : o + 1])], [y_TO[:, o : o + 1]])


@pytest.mark.parametrize(("op", "backend"), pairs(["int4_dequant"]))
@settings(max_examples=20)
@given(packed=EXACT["int4_dequant"], rows=st.integers(0, 9), seed=st.integers(0, 99))
def test_a_product_with_int4_weights_is_within_the_error_budget(op, backend, packed, rows, seed):
    """The words go in, and the weights stay where the product is."""
    packed_OW, scale_OG, *rest = packed
    packed = packed_OW, np.clip(scale_OG, -1, 1), *rest
    x_TI = np.random.default_rng(seed).uniform(-1, 1, (rows, rest[0])).astype(np.float32)
    words = Kernel.of("int4_dequant", backend).given(packed)

    def function(x_TI, weight_OI):
        return ops.linear.on(backend)(x_TI, op.on(backend)(*words))

    kernel = replace(Kernel.of("linear", backend), function=function)
    assert_within_budget(kernel, (x_TI, op(*packed)))


@pytest.mark.parametrize(("op", "backend"), pairs(["verify_attention"]))
@given(arguments=ROUNDED["verify_attention"])
def test_a_slot_that_sees_nothing_weighs_nothing(op, backend, arguments):
    *_, prefix_len_B, visible_BNN, node_count_B, _ = arguments
    real_BN = np.arange(visible_BNN.shape[1]) < node_count_B[:, None]
    seen_BN = prefix_len_B[:, None] + (visible_BNN & real_BN[:, None]).sum(axis=2)
    empty_BN = (seen_BN == 0) | ~real_BN
    latent_BNHC, lse_BNH = results(op, backend, arguments)
    assert (latent_BNHC[empty_BN] == 0).all()
    assert np.isneginf(lse_BNH[empty_BN]).all()
    assert np.isfinite(latent_BNHC).all()  # the NaN in padded slots came to nobody
    assert np.isfinite(lse_BNH[~empty_BN]).all()


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
