"""verify_attention of `kernels/cuda`, where it has more to show than the truth: spans, numbers of two bytes, limits."""

import importlib

import numpy as np
import pytest
from backends import marks_of, module_of, results

from kdtree import ShapeError, ops
from kdtree.kernels.cuda import _source, verify_attention
from kdtree.place import fetched
from kdtree.testing import Kernel
from kdtree.testing.budget import assert_within_budget
from kdtree.testing.outputs import assert_bit_equal

BACKENDS = [pytest.param(backend, marks=marks_of(backend)) for backend in ("host", "cuda")]
EVERY_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
OP = ops.verify_attention


def kernel(backend):
    return Kernel.of("verify_attention", backend)


def attention(prefix, slots, dtype=np.float32, H=2, C=12, R=5, S=None, tree="wide", seed=0):
    """Return arguments of one tree, or of one a prefix; behind the real rows of the cache is NaN."""
    prefix_len_B = np.atleast_1d(np.int32(prefix))
    rng, B = np.random.default_rng(seed), len(prefix_len_B)
    S = S or int(prefix_len_B.max()) + slots
    q_latent, q_rope = (rng.normal(size=(B, slots, H, width)).astype(dtype) for width in (C, R))
    kv = rng.normal(size=(B, S, C + R)).astype(dtype)
    for b, P in enumerate(prefix_len_B):
        kv[b, P + slots :] = np.nan
    parents = np.maximum(0, np.arange(slots) - (1 if tree == "chain" else 5)).astype(np.int32)
    parents[0] = -1
    count_B = np.full(B, slots, np.int32)
    visible = ops.visibility(np.tile(parents, (B, 1)), count_B)
    return q_latent, q_rope, kv, prefix_len_B, visible, count_B, (C + R) ** -0.5


@EVERY_BACKEND
@pytest.mark.parametrize("prefix", [0, 1, 63, 64, 65, 2048])
@pytest.mark.parametrize("slots", [1, 2, 33])
def test_prefixes_on_both_sides_of_tiles_are_within_the_error_budget(backend, prefix, slots):
    assert_within_budget(kernel(backend), attention(prefix, slots))


@EVERY_BACKEND
@pytest.mark.parametrize("slots", [1, 3])
def test_a_prefix_of_32768_rows_is_within_the_error_budget(backend, slots):
    assert_within_budget(kernel(backend), attention(32768, slots))


@EVERY_BACKEND
@pytest.mark.parametrize("tree", ["wide", "chain"])
@pytest.mark.parametrize("slots", [31, 32, 63, 64, 65, 127, 128, 129, 257])
def test_trees_of_every_size_are_within_the_error_budget(backend, slots, tree):
    assert_within_budget(kernel(backend), attention(40, slots, H=1, tree=tree))


@EVERY_BACKEND
@pytest.mark.parametrize("prefix", [65, pytest.param(2048, marks=pytest.mark.gpu)])
def test_the_sizes_of_kimi_are_within_the_error_budget(backend, prefix):
    slots = 32 if prefix == 2048 else 3
    assert_within_budget(kernel(backend), attention(prefix, slots, H=64, C=512, R=64))


@EVERY_BACKEND
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("C", "R"), [(512, 128), (640, 64), (130, 1), (1100, 3)])
def test_other_widths_are_within_the_error_budget(backend, C, R, dtype):
    assert_within_budget(kernel(backend), attention(70, 2, dtype, C=C, R=R))


@EVERY_BACKEND
@pytest.mark.parametrize("spans", range(1, 8))
def test_any_number_of_spans_is_within_the_error_budget(backend, spans, monkeypatch):
    S = 42 * 32
    span = -(-42 // spans) * 32
    assert -(-S // span) == spans
    monkeypatch.setattr(verify_attention, "span_of", lambda S: span)
    assert_within_budget(kernel(backend), attention([300, 3, S - 9], 9))


@EVERY_BACKEND
@pytest.mark.parametrize("prefix", [0, 200])
def test_spans_without_keys_change_no_bit(backend, prefix):
    q_latent, q_rope, kv, *rest = attention(prefix, 5, S=3000)
    expected = results(OP, backend, [q_latent, q_rope, kv[:, : prefix + 5], *rest])
    assert_bit_equal(results(OP, backend, [q_latent, q_rope, kv, *rest]), expected)


@EVERY_BACKEND
def test_a_slot_that_sees_nothing_is_empty_however_many_spans_there_are(backend, monkeypatch):
    monkeypatch.setattr(verify_attention, "span_of", lambda S: 32)
    arguments = list(attention(0, 70, S=200))
    arguments[4] = np.zeros_like(arguments[4])
    arguments[4][0, 40, 69] = True
    latent, lse = results(OP, backend, arguments)
    empty = np.arange(70) != 40
    assert (latent[0, empty] == 0).all()
    assert np.isneginf(lse[0, empty]).all()
    np.testing.assert_array_equal(latent[0, 40], np.tile(arguments[2][0, 69, :12], (2, 1)))


@EVERY_BACKEND
def test_nan_in_rows_that_a_slot_does_not_see_is_not_read(backend):
    """The truth says less: there 0 times NaN is NaN."""
    arguments = attention(40, 33)
    expected = results(OP, backend, arguments)
    seen = arguments[4][0, :, 7].copy()
    arguments[2][0, 47] = arguments[0][0, 7] = np.nan
    got = results(OP, backend, arguments)
    assert_bit_equal([array[0, ~seen] for array in got], [array[0, ~seen] for array in expected])
    assert np.isnan(got[0][0, seen]).all()


def bfloat_of(array):
    """Return the upper halves of float32, as uint16."""
    return (array.view(np.uint32) >> 16).astype(np.uint16)


def float_of(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


@EVERY_BACKEND
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_numbers_of_two_bytes_give_the_bits_of_their_float32(backend, kind):
    arguments = attention([70, 3], 9, H=3, C=20, R=7)
    narrow, wide = {"float16": (np.float16, np.float32), "bfloat16": (bfloat_of, float_of)}[kind]
    halves = [narrow(array) for array in arguments[:3]]
    halves[0][0, 0, 0, :4] = [narrow(np.float32([x]))[0] for x in (6e-8, -6e-8, -0.0, 65504.0)]  # subnormal in float16
    expected = results(OP, backend, [*map(wide, halves), *arguments[3:]])
    assert expected[0].dtype == np.float32
    assert_bit_equal(results(OP, backend, [*halves, *arguments[3:]]), expected)
    strided = [np.repeat(array, 2, axis=1)[:, ::2] for array in halves]
    assert_bit_equal(results(OP, backend, [*strided, *arguments[3:]]), expected)


@EVERY_BACKEND
def test_every_float16_is_read_exactly(backend):
    """One slot, one key: the mixture is the key."""
    bits = np.arange(2**16, dtype=np.uint16).reshape(-1, 1, 512)
    bits = bits[np.isfinite(bits.view(np.float16)).all(axis=(1, 2))]
    B = len(bits)
    zero, count = np.zeros((B, 1, 1, 1), np.float16), np.ones(B, np.int32)
    kv = np.concatenate([bits.view(np.float16), np.zeros((B, 1, 1), np.float16)], axis=2)
    q = np.zeros((B, 1, 1, 512), np.float16)
    latent, _ = results(OP, backend, [q, zero, kv, 0 * count, np.ones((B, 1, 1), bool), count, 1.0])
    np.testing.assert_array_equal(latent[:, 0, 0], kv[:, 0, :512].astype(np.float32))


@EVERY_BACKEND
def test_two_bytes_beside_other_numbers_are_refused(backend):
    arguments = list(attention(3, 2))
    arguments[2] = bfloat_of(arguments[2])
    with pytest.raises(ShapeError, match="kv_BSX: got dtype uint16, needs float32 as q_latent_BNHC"):
        results(OP, backend, arguments)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint16])
@pytest.mark.parametrize(("C", "R"), [(1, 1), (64, 1), (512, 64), (512, 128), (640, 64), (1024, 64)])
def test_a_plan_fits_the_shared_memory_of_the_target(C, R, dtype):
    rows, shared_bytes, macros = verify_attention.plan(C, R, dtype)
    assert shared_bytes <= _source.SHARED_LIMIT
    assert rows == 8 * macros["ROWS_A_WARP"]


@EVERY_BACKEND
def test_a_row_that_fits_no_plan_is_refused_with_need_and_limit(backend):
    with pytest.raises(ValueError, match=r"verify_attention_spans: needs \d+ B of shared memory, got a limit of \d+ B"):
        results(OP, backend, attention(3, 2, C=8000))


@EVERY_BACKEND
def test_a_launch_writes_zeros_and_a_status_where_a_count_is_out_of_range(backend):
    """As a graph's owner sees it, who reads the status later."""
    device = importlib.import_module(f"kdtree.kernels.{backend}._device").device()
    arguments = attention([4, 4, 5], 3, S=7)
    arguments[5][1] = 4
    operands = verify_attention.Operands(*kernel(backend).given(arguments)[:6])
    xp = module_of(backend)
    attended = OP.truth(*arguments[:2], arguments[2], arguments[3] * 0, arguments[4], arguments[5] * 0 + 3, 1.0)
    attended = type(attended)(*(xp.empty(array.shape, array.dtype) for array in attended))
    status_B = xp.empty(3, np.int32)
    parts = verify_attention.empty_parts(device, attended, 7, 32)
    verify_attention.launch(device, operands, 0.5, parts, attended, status_B, 32)
    latent, lse, status = (fetched(array) for array in (*attended, status_B))
    assert status.tolist() == [0, 1, 1]
    assert (latent[1:] == 0).all()
    assert np.isneginf(lse[1:]).all()
    assert np.isfinite(latent[0]).all()
