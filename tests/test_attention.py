"""Attention over [prefix | tree]: the absorbed form against the expanded one, and the cases that people hit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdtree import ShapeError, TreeError, ops
from kdtree.reference.expanded_attention import expanded_attention
from kdtree.testing.strategies import parent_batches


def attention_case(parent_BN, node_count_B, prefix_len, seed, H=2, C=3, U=2, R=2, M=2):
    """Return random float64 arguments for both truths of attention."""
    rng = np.random.default_rng(seed)
    B, N = parent_BN.shape
    S = prefix_len + N
    return {
        "q_nope_BNHU": rng.normal(size=(B, N, H, U)),
        "q_rope_BNHR": rng.normal(size=(B, N, H, R)),
        "kv_BSX": rng.normal(size=(B, S, C + R)),
        "prefix_len_B": rng.integers(0, prefix_len + 1, B).astype(np.int32),
        "visible_BNN": ops.visibility(parent_BN, node_count_B),
        "node_count_B": node_count_B,
        "scale": (U + R) ** -0.5,
        "k_b_HUC": rng.normal(size=(H, U, C)),
        "v_b_HMC": rng.normal(size=(H, M, C)),
    }


def absorbed(q_nope_BNHU, k_b_HUC, v_b_HMC, **rest):
    """Return unabsorb(verify_attention(absorb(q)))."""
    B, N, H, U = q_nope_BNHU.shape
    q_latent = ops.absorb(q_nope_BNHU.reshape(B * N, H, U), k_b_HUC).reshape(B, N, H, -1)
    latent, _ = ops.verify_attention(q_latent, **rest)
    return ops.unabsorb(latent.reshape(B * N, H, -1), v_b_HMC).reshape(B, N, H, -1)


@given(parent_batches(max_nodes=33), st.integers(0, 5), st.integers(0, 99))
def test_absorbed_attention_equals_expanded_attention(batch, prefix_len, seed):
    case = attention_case(*batch, prefix_len, seed)
    np.testing.assert_allclose(absorbed(**case), expanded_attention(**case), rtol=0, atol=1e-12)


@given(parent_batches(max_nodes=33), st.integers(0, 5), st.integers(0, 99))
def test_nan_in_padded_rows_reaches_no_real_slot(batch, prefix_len, seed):
    case = attention_case(*batch, prefix_len, seed)
    del case["k_b_HUC"], case["v_b_HMC"]
    case["q_latent_BNHC"] = np.repeat(case.pop("q_nope_BNHU"), 2, axis=3)[..., :3]
    clean = ops.verify_attention(**case)
    for b, (P, n) in enumerate(zip(case["prefix_len_B"], case["node_count_B"], strict=True)):
        case["kv_BSX"][b, P + n :] = np.nan
        case["q_latent_BNHC"][b, n:] = np.nan
        case["q_rope_BNHR"][b, n:] = np.inf
        case["visible_BNN"][b, n:] = True
        case["visible_BNN"][b, :, n:] = True
    for got, expected in zip(ops.verify_attention(**case), clean, strict=True):
        np.testing.assert_array_equal(got, expected)


def zero_query(parents, latents, prefix, N=None):
    """Attend with queries of zero: each slot gets the plain mean of the latents that it sees."""
    n, P = len(parents), len(prefix)
    N = N or n
    parent_BN = np.full((1, N), -1)
    parent_BN[0, :n] = parents
    kv_BSX = np.zeros((1, P + N, 2))
    kv_BSX[0, : P + n, 0] = [*prefix, *latents]
    visible = ops.visibility(parent_BN, [n])
    counts = np.array([n], np.int32)
    queries = np.zeros((1, N, 1, 1))
    return ops.verify_attention(queries, queries, kv_BSX, np.array([P], np.int32), visible, counts, 1.0)


@pytest.mark.parametrize("N", [3, 5, 8, 64])
def test_a_zero_query_averages_what_is_visible(N):
    latent, lse = zero_query([-1, 0, 0], [5, 7, 100], [1, 3], N)
    np.testing.assert_allclose(latent[0, :3, 0, 0], [3, 4, 27.25], rtol=1e-15)
    np.testing.assert_allclose(lse[0, :3, 0], np.log([3, 4, 4]))
    assert (latent[0, 3:] == 0).all()
    assert (lse[0, 3:] == -np.inf).all()


def test_a_late_child_of_the_root_does_not_read_the_chain_before_it():
    latent, _ = zero_query([*range(-1, 39), 0], [2, *[1e6] * 39, 2], [])
    assert latent[0, 40, 0, 0] == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_slot_that_sees_nothing_gives_zero_wherever_it_stands(place):
    visible = np.eye(3, dtype=bool)[None]
    visible[0, place] = False
    kv = np.arange(1.0, 7.0).reshape(1, 3, 2)
    q = np.ones((1, 3, 1, 1))
    latent, lse = ops.verify_attention(q, q, kv, np.array([0], np.int32), visible, np.array([3], np.int32), 1.0)
    for slot in range(3):
        assert latent[0, slot, 0, 0] == (0 if slot == place else kv[0, slot, 0])
        assert np.isinf(lse[0, slot, 0]) == (slot == place)


def test_a_hidden_score_weighs_nothing_however_low_the_visible_ones_are():
    """A finite mask value such as -1e9 would put all weight on the hidden key."""
    kv = np.float32([[[0, 1], [7, 2]]])
    q_latent, q_rope = np.zeros((1, 2, 1, 1), np.float32), np.full((1, 2, 1, 1), -1e9, np.float32)
    visible = np.eye(2, dtype=bool)[None]
    none, two = np.array([0], np.int32), np.array([2], np.int32)
    latent, _ = ops.verify_attention(q_latent, q_rope, kv, none, visible, two, 1.0)
    assert latent[0, :, 0, 0].tolist() == [0, 7]


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("visible_BNN", np.ones((1, 3, 4), bool), ShapeError, r"visible_BNN: got shape \(1, 3, 4\)"),
        ("visible_BNN", np.ones((1, 2, 2), bool), ShapeError, "visible_BNN: got shape"),
        ("visible_BNN", np.ones((1, 3, 3), np.int8), ShapeError, "visible_BNN: got dtype int8, needs bool"),
        ("kv_BSX", np.zeros((1, 3, 3)), ShapeError, "kv_BSX: got rows of 3, needs C [+] R = 2"),
        ("kv_BSX", np.zeros((1, 2, 2)), ShapeError, "kv_BSX: got 2 rows"),
        ("prefix_len_B", np.array([1], np.int32), ShapeError, "kv_BSX: got 3 rows"),
        ("prefix_len_B", np.array([-1], np.int32), ShapeError, "kv_BSX: got 3 rows"),
        ("node_count_B", np.array([4], np.int32), TreeError, "node_count_B: got 4"),
    ],
)
def test_bad_arguments_of_attention_are_refused(name, value, error, message):
    q = np.zeros((1, 3, 1, 1))
    good = {
        "q_latent_BNHC": q,
        "q_rope_BNHR": q,
        "kv_BSX": np.zeros((1, 3, 2)),
        "prefix_len_B": np.array([0], np.int32),
        "visible_BNN": np.eye(3, dtype=bool)[None],
        "node_count_B": np.array([3], np.int32),
        "scale": 1.0,
    }
    ops.verify_attention(**good)
    with pytest.raises(error, match=message):
        ops.verify_attention(**{**good, name: value})


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("prefix", [0, 1, 63, 64, 65, 16384, 32768, 65536])
def test_a_long_prefix_of_equal_latents_averages_to_them(backend, slots, prefix):
    """A mean of equal float32 numbers: partial sums over a long prefix must not lose them."""
    kv = np.full((1, prefix + slots, 4), np.pi, np.float32)
    query = np.zeros((1, slots, 2, 2), np.float32)
    place = np.array([prefix], np.int32), np.tri(slots, dtype=bool)[None], np.array([slots], np.int32)
    latent, lse = ops.verify_attention.on(backend)(query, query, kv, *place, 1.0)
    np.testing.assert_allclose(latent, np.float32(np.pi), rtol=1e-5)
    np.testing.assert_allclose(lse[0, :, 0], np.log(prefix + 1 + np.arange(slots)), rtol=1e-6, atol=1e-6)
