"""The other ops of the model: definitions, and the cases that people hit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_fixtures import tiny_config

from kdtree import ShapeError, TreeError, ops
from kdtree.reference.config import Yarn
from kdtree.reference.rope import inverse_frequencies
from kdtree.testing.strategies import parent_batches


def score(q, k, positions, interleave):
    """Return the score of one rotated query and key."""
    inv_freq_J = 10000.0 ** -np.array([0, 0.5])
    query, key = (
        ops.rope(np.array([[x]], float), np.array([position]), inv_freq_J, 1.0, interleave)
        for x, position in zip((q, k), positions, strict=True)
    )
    return float((query * key).sum())


VECTORS = st.lists(st.floats(-2, 2, width=32), min_size=8, max_size=8)  # a query and a key
POSITIONS = st.integers(0, 40)


def test_the_two_rope_layouts_rotate_different_pairs():
    q, k = [0, 1, 0, 0], [1, 0, 0, 0]
    assert score(q, k, (1, 0), interleave=True) == pytest.approx(-np.sin(1), abs=1e-15)
    assert score(q, k, (1, 0), interleave=False) == pytest.approx(0, abs=1e-15)


@given(VECTORS, POSITIONS, POSITIONS)
def test_the_two_rope_layouts_differ_by_a_permutation(values, i, j):
    q, k = values[:4], values[4:]
    neighbours_to_halves = [0, 2, 1, 3]
    permuted = [[x[p] for p in neighbours_to_halves] for x in (q, k)]
    assert score(q, k, (i, j), True) == pytest.approx(score(*permuted, (i, j), False), abs=1e-12)


@given(VECTORS, POSITIONS, POSITIONS, st.booleans())
def test_scores_depend_on_the_difference_of_positions(values, i, j, interleave):
    q, k = values[:4], values[4:]
    moved = score(q, k, (i + 17, j + 17), interleave)
    assert score(q, k, (i, j), interleave) == pytest.approx(moved, abs=1e-12)


def test_yarn_stretches_as_kimi_k26_is_configured():
    yarn = Yarn(64, 4096, 32, 1, 1, 1)
    config = tiny_config(qk_nope_head_dim=128, qk_rope_head_dim=64, rope_theta=50000.0, yarn=yarn)
    inv_freq_J = inverse_frequencies(64, 50000.0, yarn)
    published = [1.0, 6.687403e-2, 4.377666e-2, 4.465849e-3, 1.807023e-5, 4.382206e-7]
    np.testing.assert_allclose(inv_freq_J[[0, 8, 9, 14, 20, 31]], published, rtol=1e-6)
    assert config.attention_scale == pytest.approx(0.1446796, abs=1e-7)
    assert yarn.rope_scale == 1.0


def test_yarn_corrects_the_softmax_scale_by_mscale_all_dim_alone():
    config = tiny_config(qk_nope_head_dim=128, qk_rope_head_dim=64, yarn=Yarn(40, 4096, mscale=1, mscale_all_dim=1))
    assert config.attention_scale == pytest.approx(0.135234, abs=1e-6)
    plain = tiny_config(qk_nope_head_dim=128, qk_rope_head_dim=64, yarn=None).attention_scale
    assert plain == pytest.approx(0.072169, abs=1e-6)
    for yarn in (Yarn(1, 4096, mscale=1, mscale_all_dim=1), Yarn(40, 4096, mscale=1, mscale_all_dim=0)):
        assert tiny_config(qk_nope_head_dim=128, qk_rope_head_dim=64, yarn=yarn).attention_scale == plain


def test_an_explicit_attention_factor_wins():
    assert Yarn(4, 128, mscale=1, mscale_all_dim=0.8, attention_factor=1.5).rope_scale == 1.5
    assert Yarn(4, 128).rope_scale == pytest.approx(0.1 * np.log(4) + 1)


def test_the_bias_chooses_and_does_not_weigh():
    routing = ops.route(np.zeros((1, 2)), np.array([0.0, 10.0]), 2, 1, 1, True, 1.0, "sigmoid")
    assert routing.expert_TK.tolist() == [[1, 0]]
    np.testing.assert_allclose(routing.weight_TK, [[0.5, 0.5]])


def test_a_refused_group_stays_refused_below_negative_choices():
    """Filling refused groups with 0 instead of -inf would choose expert 0."""
    choice = np.array([-0.626, -0.575, -0.850, 0.022])
    routing = ops.route(np.zeros((1, 4)), choice - 0.5, 2, 2, 1, True, 1.0, "sigmoid")
    assert routing.expert_TK.tolist() == [[3, 2]]


def test_equal_choices_go_to_the_lower_expert_and_the_lower_group():
    assert ops.route(np.zeros((1, 8)), np.zeros(8), 3, 4, 2, True, 1.0, "sigmoid").expert_TK.tolist() == [[0, 1, 2]]
    scores = np.array([[1.0, 3, 3, 2, 3, 1]])
    assert ops.route(scores, np.zeros(6), 2, 1, 1, True, 1.0, "softmax").expert_TK.tolist() == [[1, 2]]


def test_softmax_routing_knows_no_bias_no_groups_and_no_scale():
    logit = np.log(np.array([[0.5, 0.25, 0.125, 0.125]]))
    routing = ops.route(logit, np.full(4, 9.0), 2, 4, 1, False, 2.5, "softmax")
    np.testing.assert_allclose(routing.weight_TK, [[0.5, 0.25]])
    np.testing.assert_allclose(ops.route(logit, np.zeros(4), 2, 1, 1, True, 2.5, "softmax").weight_TK, [[2 / 3, 1 / 3]])


@pytest.mark.parametrize(("normalise", "factor"), [(True, 2.5), (False, 1.875)])
def test_identity_experts_scale_the_input(normalise, factor):
    """Experts that return their input: scale 2.5 normalised, and sigmoid weights .5 and .25 as they are."""
    x = np.array([[2.0, -3.0]])
    logit = np.array([[0.0, np.log(1 / 3)]])
    routing = ops.route(logit, np.zeros(2), 2, 1, 1, normalise, 2.5, "sigmoid")
    big = 1e3  # silu(big) / big = 1
    gate = np.zeros((2, 2, 2))
    gate[:, 0, 0] = gate[:, 1, 0] = big / 2.0  # gate x = big for both rows, as x[0] = 2
    down = np.broadcast_to(np.eye(2) / big, (2, 2, 2))
    up = np.broadcast_to(np.eye(2), (2, 2, 2))
    y = ops.moe(x, routing.expert_TK, routing.weight_TK, gate, up, down)
    np.testing.assert_allclose(y, factor * x, rtol=1e-12)


@given(st.integers(0, 99), st.integers(1, 6))
def test_the_moe_is_the_weighted_sum_of_its_experts(seed, T):
    rng = np.random.default_rng(seed)
    x, gate, up = rng.normal(size=(T, 3)), rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 5, 3))
    down, weight = rng.normal(size=(4, 3, 5)), rng.normal(size=(T, 2))
    expert = np.array([rng.permutation(4)[:2] for _ in range(T)], np.int32)
    expected = np.zeros((T, 3))
    for t, k in np.ndindex(T, 2):
        e = expert[t, k]
        g = gate[e] @ x[t]
        expected[t] += weight[t, k] * (down[e] @ (g / (1 + np.exp(-g)) * (up[e] @ x[t])))
    np.testing.assert_allclose(ops.moe(x, expert, weight, gate, up, down), expected, atol=1e-12)


def test_argmax_takes_the_first_of_equal_logits_and_refuses_nan():
    assert ops.argmax(np.array([[1.0, 3, 3], [0, 0, 0]])).tolist() == [1, 0]
    wide = np.full((1, 8193), -np.inf)
    wide[0, 8192] = 0
    assert ops.argmax(wide).tolist() == [8192]
    with pytest.raises(ValueError, match="logit_TV: got NaN at row 1"):
        ops.argmax(np.array([[0.0, 1], [np.nan, 1]]))


def test_top_k_takes_the_lower_of_equal_tokens_and_all_of_a_small_vocabulary():
    assert ops.top_k(np.array([[1.0, 2, 5, 4, 5]]), 2).token_TK.tolist() == [[2, 4]]
    assert ops.top_k(np.array([[1.0, 2, 5, 4, 5]]), 1).token_TK.tolist() == [[2]]
    assert ops.top_k(np.zeros((2, 3)), 10).token_TK.tolist() == [[0, 1, 2]] * 2
    np.testing.assert_allclose(ops.top_k(np.zeros((1, 4)), 4).logprob_TK, np.log(0.25))
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"logit_TV: got {bad} as the largest of row 0"):
            ops.top_k(np.array([[0.0, bad]]), 1)


def test_a_token_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="token_T: got 5 at row 1, needs 0 to 4"):
        ops.embed(np.array([0, 5]), np.zeros((5, 2)))


@given(parent_batches(max_nodes=12), st.data())
def test_compaction_touches_the_path_alone(batch, data):
    parent_BN, node_count_B = batch
    B, N = parent_BN.shape
    prefix_len_B = np.array([data.draw(st.integers(0, 4)) for _ in range(B)], np.int32)
    kv = np.random.default_rng(0).normal(size=(2, B, 4 + N, 3))
    view, before = kv[:], kv.copy()
    path_BN, length_B = np.full((B, N), -1), np.zeros(B, int)
    for b, n in enumerate(node_count_B):
        path = np.flatnonzero(ops.visibility(parent_BN, node_count_B)[b, data.draw(st.integers(0, n - 1))])
        length_B[b] = len(path)
        path_BN[b, : len(path)] = path
    after_B = ops.compact_cache(kv, prefix_len_B, path_BN, length_B)
    np.testing.assert_array_equal(after_B, prefix_len_B + length_B)
    for b, (P, length) in enumerate(zip(prefix_len_B, length_B, strict=True)):
        np.testing.assert_array_equal(view[:, b, P : P + length], before[:, b, P + path_BN[b, :length]])
        np.testing.assert_array_equal(kv[:, b, :P], before[:, b, :P])
        np.testing.assert_array_equal(kv[:, b, P + length :], before[:, b, P + length :])


@pytest.mark.parametrize(
    ("path", "length"), [([1, 2], 2), ([0, 0], 2), ([0, 2, 1], 3), ([0, 9], 2), ([0, 1], 4), ([0, 1], -1)]
)
def test_a_path_that_is_none_is_refused_and_nothing_is_changed(path, length):
    kv = np.arange(12.0).reshape(1, 2, 6, 1)
    before = kv.copy()
    path_BN = np.array([[0, 1, 2], [*path, *[-1] * (3 - len(path))]])
    with pytest.raises(TreeError, match="batch row 1"):
        ops.compact_cache(kv, np.array([1, 1]), path_BN, np.array([2, length]))
    np.testing.assert_array_equal(kv, before)


@pytest.mark.parametrize("odd", [1, 3, 7])
def test_an_odd_rope_dimension_is_refused_when_the_config_is_made(odd):
    with pytest.raises(ValueError, match=f"qk_rope_head_dim: got {odd}, needs an even number"):
        tiny_config(qk_rope_head_dim=odd)
    for even in (2, 4, 8):
        tiny_config(qk_rope_head_dim=even)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: got 0"),
        ({"n_shared_experts": -1}, "n_shared_experts: got -1"),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps: got -1e-05"),
        ({"q_lora_rank": 0}, "q_lora_rank: got 0"),
        ({"rope_theta": 0.0}, "rope_theta: got 0.0"),
        ({"scoring_func": "relu"}, "scoring_func: got 'relu'"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: got 9, needs 1 to n_routed_experts = 8"),
        ({"n_group": 3}, "n_group: got 3, needs a divisor of 8"),
        ({"n_group": 8, "topk_group": 8}, "n_group: got 8"),
        ({"topk_group": 5}, "topk_group: got 5, needs 1 to n_group = 4"),
        ({"topk_group": 1}, "num_experts_per_tok: got 3, needs at most 2"),
    ],
)
def test_a_config_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**changes)


LOGITS = np.zeros((1, 4))


@pytest.mark.parametrize(
    ("refused", "error", "message"),
    [
        (lambda: ops.top_k(LOGITS, -1), ValueError, "k: got -1"),
        (lambda: ops.embed(np.array([True, False]), np.zeros((3, 2))), ShapeError, "token_T: got dtype bool"),
        (
            lambda: ops.rope(np.zeros((1, 1, 3)), np.array([0]), np.ones(1), 1.0, True),
            ShapeError,
            "needs R / 2 for R = 3",
        ),
        (lambda: ops.route(LOGITS, np.zeros(4), 2, 1, 1, True, 1.0, "Softmax"), ValueError, "scoring: got 'Softmax'"),
        (
            lambda: ops.route(LOGITS, np.zeros(4), 3, 2, 1, True, 1.0, "sigmoid"),
            ValueError,
            "top_k: got 3, needs 0 to 2",
        ),
        (
            lambda: ops.route(LOGITS, np.zeros(4), 2, 3, 1, True, 1.0, "sigmoid"),
            ValueError,
            "n_group, topk_group: got 3",
        ),
        (
            lambda: ops.route(LOGITS * np.nan, np.zeros(4), 2, 1, 1, True, 1.0, "sigmoid"),
            ValueError,
            "got NaN at row 0",
        ),
    ],
)
def test_nonsense_is_refused_by_name(refused, error, message):
    with pytest.raises(error, match=message):
        refused()


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize(
    ("experts", "error"),
    [([[0, 2]], ValueError), ([[0, -1]], ValueError), ([[1, 1]], ValueError), ([[0.0, 1.0]], ShapeError)],
)
def test_experts_that_are_none_are_refused_alike_on_every_backend(backend, experts, error):
    matrices = np.zeros((2, 3, 4)), np.zeros((2, 3, 4)), np.zeros((2, 4, 3))
    with pytest.raises(error, match="expert_TK: got .*needs "):
        ops.moe.on(backend)(np.zeros((1, 4)), np.array(experts), np.ones((1, 2)), *matrices)
