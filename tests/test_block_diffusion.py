"""What the block-diffusion drafter computes, by its definition, and what a draft depends on."""

from dataclasses import replace

import numpy as np
import pytest
from drafter_fixtures import (
    context_of,
    draft_after,
    drafter_config,
    random_drafter,
    random_hidden,
    repeat_heads,
    same_bits,
)
from model_fixtures import TINY, random_weights

from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.reference.block_diffusion import Context, draft, empty_context, extend_context, mask_block, target_features
from kdtree.reference.errors import ShapeError

V, P = TINY.vocab_size, 23
TARGET, TARGET_64 = random_weights(), random_weights(dtype=np.float64)
DRAFTER, DRAFTER_64 = random_drafter(), random_drafter(dtype=np.float64)
CONFIG = DRAFTER.config
L = CONFIG.draft_len
HIDDEN = random_hidden(P)
TOKENS = np.random.default_rng(1).integers(0, V, P + 1).astype(np.int32)


# The definition, one number and one head at a time.


def by_definition(weights, target, hidden_YTD, token_T):
    """Return the log-probs of a block from the streams of all tokens before it, kept from no earlier round."""
    config = weights.config
    start = hidden_YTD.shape[1]
    features = [np.concatenate([hidden_YTD[i + 1, p] for i in config.target_layer_ids]) for p in range(start)]
    context = [normed(weights.fc_DI @ feature, weights.hidden_norm, config) for feature in features]
    rows = [target.embed_VD[token] for token in token_T]
    for layer in weights.layers:
        h = [normed(x, layer.input_layernorm, config) for x in rows]
        rows = [x + layer.o_proj @ attention_of_a_row(layer, config, k, start, context, h) for k, x in enumerate(rows)]
        h = [normed(x, layer.post_attention_layernorm, config) for x in rows]
        rows = [x + mlp_of_a_row(layer.mlp, row) for x, row in zip(rows, h, strict=True)]
    logits = np.array([target.lm_head_VD @ normed(x, weights.norm, config) for x in rows[1:]])
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def attention_of_a_row(layer, config, k, start, context, h):
    M, shared = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    seen = [*enumerate(context), *enumerate(h, start)]
    out = []
    for head in range(config.num_attention_heads):
        group = head // shared
        mine, theirs = slice(head * M, (head + 1) * M), slice(group * M, (group + 1) * M)
        q = turned(normed(layer.q_proj[mine] @ h[k], layer.q_norm, config), start + k, config)
        keys = [turned(normed(layer.k_proj[theirs] @ x, layer.k_norm, config), p, config) for p, x in seen]
        weight = np.exp([q @ key / np.sqrt(M) for key in keys])
        out.append(sum(w * (layer.v_proj[theirs] @ x) for w, (_, x) in zip(weight, seen, strict=True)) / weight.sum())
    return np.concatenate(out)


def mlp_of_a_row(mlp, x):
    gate = mlp.gate_FD @ x
    return mlp.down_DF @ (gate / (1 + np.exp(-gate)) * (mlp.up_FD @ x))


def normed(x, weight, config):
    return weight * x / np.sqrt(np.mean(x**2) + config.rms_norm_eps)


def turned(x, position, config):
    """Rotate halves as complex numbers, by frequencies that YaRN leaves, ramps or divides."""
    M, yarn = config.head_dim, config.yarn
    frequency, length = config.rope_theta ** (-np.arange(0, M, 2) / M), 1.0
    if yarn:
        turns = [
            yarn.original_max_position_embeddings / (2 * np.pi * beta) for beta in (yarn.beta_fast, yarn.beta_slow)
        ]
        low, high = (M * np.log(turn) / (2 * np.log(config.rope_theta)) for turn in turns)
        low, high = max(np.floor(low), 0), min(np.ceil(high), M - 1)
        stretched = np.clip((np.arange(M // 2) - low) / (high - low), 0, 1)
        frequency = frequency * (1 - stretched + stretched / yarn.factor)
        length = (0.1 * yarn.mscale * np.log(yarn.factor) + 1) / (0.1 * yarn.mscale_all_dim * np.log(yarn.factor) + 1)
    z = (x[: M // 2] + 1j * x[M // 2 :]) * length * np.exp(1j * position * frequency)
    return np.concatenate([z.real, z.imag])


@pytest.mark.parametrize("tokens", [0, 1, P])
@pytest.mark.parametrize(
    "changes",
    [{}, {"yarn": None}, {"num_key_value_heads": 6}, {"num_key_value_heads": 1}, {"target_layer_ids": (1, 0, 1)}],
    ids=["shared heads", "no yarn", "own heads", "one kv head", "three taps"],
)
def test_a_draft_equals_the_definition_written_with_loops(tokens, changes):
    weights = random_drafter(drafter_config(**changes), dtype=np.float64)
    hidden = random_hidden(tokens, dtype=np.float64)
    block = mask_block(weights.config, 17)
    found = draft_after(weights, TARGET_64, context_of(weights, hidden), block)
    assert found.shape == (L, V)
    np.testing.assert_allclose(found, by_definition(weights, TARGET_64, hidden, block), rtol=0, atol=1e-11)


def test_single_precision_is_near_double():
    block = mask_block(CONFIG, 17)
    found = draft_after(DRAFTER, TARGET, context_of(DRAFTER, HIDDEN), block)
    truth = draft_after(DRAFTER_64, TARGET_64, context_of(DRAFTER_64, HIDDEN.astype(np.float64)), block)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, truth, rtol=0, atol=2e-5)


def test_shared_key_value_heads_are_repeated_heads():
    own, block = repeat_heads(DRAFTER_64), mask_block(CONFIG, 3)
    assert own.config.num_key_value_heads == 6
    hidden = HIDDEN.astype(np.float64)
    drafts = [draft_after(weights, TARGET_64, context_of(weights, hidden), block) for weights in (DRAFTER_64, own)]
    np.testing.assert_allclose(*drafts, rtol=0, atol=1e-12)


def test_each_row_of_a_draft_is_a_distribution():
    logprob = draft_after(DRAFTER_64, TARGET_64, context_of(DRAFTER_64, HIDDEN.astype(float)), mask_block(CONFIG, 3))
    np.testing.assert_allclose(np.exp(logprob).sum(axis=1), 1, rtol=0, atol=1e-13)


def test_huge_logits_do_not_overflow():
    logprob = draft(
        DRAFTER, TARGET.embed_VD, 1e4 * TARGET.lm_head_VD, context_of(DRAFTER, HIDDEN), mask_block(CONFIG, 3)
    )
    assert np.isfinite(logprob).all()
    np.testing.assert_allclose(np.exp(logprob).sum(axis=1), 1, atol=1e-5)


# What a draft depends on.


def test_attention_within_the_block_is_not_causal():
    context, block = context_of(DRAFTER, HIDDEN), mask_block(CONFIG, 3)
    known = block.copy()
    known[5] = 11
    before, after = (draft_after(DRAFTER, TARGET, context, tokens) for tokens in (block, known))
    assert (np.abs(before - after).max(axis=1) > 1e-4).all()  # row 0 is for block row 1


@pytest.mark.parametrize("position", [0, P - 1])
def test_every_committed_token_matters(position):
    other = HIDDEN.copy()
    other[:, position] *= -1
    drafts = [draft_after(DRAFTER, TARGET, context_of(DRAFTER, h), mask_block(CONFIG, 3)) for h in (HIDDEN, other)]
    assert np.abs(drafts[0] - drafts[1]).max() > 1e-4


def test_the_anchor_matters():
    context = context_of(DRAFTER, HIDDEN)
    drafts = [draft_after(DRAFTER, TARGET, context, mask_block(CONFIG, anchor)) for anchor in (3, 4)]
    assert np.abs(drafts[0] - drafts[1]).max() > 1e-4


def test_only_the_tapped_streams_matter():
    other = random_hidden(P, seed=9)
    other[1:3] = HIDDEN[1:3]  # out of layers 0 and 1
    assert same_bits(context_of(DRAFTER, HIDDEN).key_YPGM, context_of(DRAFTER, other).key_YPGM)


def test_features_are_the_outputs_of_the_layers_side_by_side_in_the_order_of_the_taps():
    np.testing.assert_array_equal(target_features(HIDDEN, (1, 0)), np.hstack([HIDDEN[2], HIDDEN[1]]))


@pytest.mark.parametrize("layer", [-1, 2, 3])
def test_the_last_layer_cannot_be_tapped_for_its_stream_is_kept_normed_only(layer):
    with pytest.raises(ValueError, match=f"target_layer_ids: got {layer}, needs layers before"):
        target_features(HIDDEN, (0, layer))


def test_the_unknown_tokens_are_the_mask_token():
    np.testing.assert_array_equal(mask_block(CONFIG, 5), [5] + [CONFIG.mask_token_id] * L)
    assert mask_block(CONFIG, 5).dtype == np.int32
    other = replace(DRAFTER, config=drafter_config(mask_token_id=2))
    hidden, token = HIDDEN[:, :4], TOKENS[:5]
    drafts = [BlockDiffusion(weights, TARGET).session().propose(token, hidden) for weights in (DRAFTER, other)]
    assert np.abs(drafts[0] - drafts[1]).max() > 1e-4


def test_positions_are_absolute_but_only_their_differences_count():
    """Move the context and the block together: keys are others, scores are not."""
    context, moved = context_of(DRAFTER_64, HIDDEN.astype(float)), 40
    shifted = extend_context(
        DRAFTER_64,
        context_of(DRAFTER_64, random_hidden(moved, seed=5, dtype=float)),
        target_features(HIDDEN.astype(float), CONFIG.target_layer_ids),
    )
    late = Context(shifted.key_YPGM[:, moved:], shifted.value_YPGM[:, moved:])
    np.testing.assert_allclose(late.value_YPGM, context.value_YPGM, rtol=0, atol=1e-12)
    assert np.abs(late.key_YPGM - context.key_YPGM).max() > 0.1
    score = np.einsum("ypgm,yqgm->yqpg", context.key_YPGM, context.key_YPGM)
    np.testing.assert_allclose(np.einsum("ypgm,yqgm->yqpg", late.key_YPGM, late.key_YPGM), score, rtol=0, atol=1e-11)


def test_a_context_whose_order_is_changed_gives_another_draft():
    drafts = [
        draft_after(DRAFTER, TARGET, context_of(DRAFTER, hidden), mask_block(CONFIG, 3))
        for hidden in (HIDDEN, HIDDEN[:, ::-1])
    ]
    assert np.abs(drafts[0] - drafts[1]).max() > 1e-3


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"token_T": mask_block(CONFIG, 3)[1:]}, "token_T: got 6 tokens, needs block_size = 7"),
        ({"embed_VD": TARGET.embed_VD[:, :9], "lm_head_VD": TARGET.lm_head_VD[:, :9]}, "embed_VD: got D = 9"),
        ({"lm_head_VD": TARGET.lm_head_VD[1:]}, "lm_head_VD: got shape"),
    ],
)
def test_a_block_that_does_not_fit_is_refused_by_name(arguments, message):
    good = {"embed_VD": TARGET.embed_VD, "lm_head_VD": TARGET.lm_head_VD, "token_T": mask_block(CONFIG, 3)}
    with pytest.raises(ShapeError, match=message):
        draft(DRAFTER, context=empty_context(DRAFTER), **(good | arguments))


def test_features_of_another_width_are_refused_by_name():
    with pytest.raises(ShapeError, match="feature_TI: got 64 features a token, needs 128"):
        extend_context(DRAFTER, empty_context(DRAFTER), HIDDEN[1])
