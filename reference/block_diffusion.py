"""The block-diffusion drafter: one pass over [anchor, MASK, MASK, ...] drafts all tokens of a block at once.

    c = hidden_norm(fc(features of the target))                 one row a committed token: the context
    x = embed[block];  h = norm(x)
    x = x + o_proj(attention(h over [c | h]));  x = x + mlp(norm(x))                            for each layer
    log-probs = log_softmax(lm_head(norm(x)))                   row k is the token AT position start + k

Every row sees the whole context and the whole block, later rows included. Given the context the drafts of a block are
independent of each other: the marginals that a draft tree is built from.

Letters of this file: I features of a token (taps times D), G key-value heads, A query heads that share one of them
(H = G A), M numbers a head; T rows are tokens to read, or the block.

Source: DFlash, arXiv 2602.06036 and github.com/z-lab/dflash.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import model_ops
from .arrays import Float, Index, sizes
from .drafter_config import DrafterConfig
from .drafter_weights import DrafterLayer, DrafterWeights
from .errors import ShapeError
from .rope import inverse_frequencies

__all__ = ["Context", "draft", "empty_context", "extend_context", "mask_block", "target_features"]


@dataclass(frozen=True)
class Context:
    """What the drafter keeps of the committed tokens: row p is of the token at position p."""

    key_YPGM: Float  #: normed and rotated
    value_YPGM: Float

    @property
    def length(self) -> int:
        """P, the committed tokens, and so the position of the next anchor."""
        return int(self.key_YPGM.shape[1])


def empty_context(weights: DrafterWeights) -> Context:
    """Return the context of no tokens, with which a draft follows from its anchor alone."""
    config = weights.config
    nothing = np.zeros((config.num_hidden_layers, 0, config.num_key_value_heads, config.head_dim), weights.fc_DI.dtype)
    return Context(nothing, nothing)


def target_features(hidden_YTD: Float, target_layer_ids: Sequence[int]) -> Float:
    """Return what the drafter reads of each token: the outputs of some layers of the target, side by side.

    Parameters
    ----------
    hidden_YTD : float, shape (target layers + 1, T, D)
        Streams of the target: the embedding, after each layer but the last, after the final norm.
    target_layer_ids : sequence of int
        Layers, counted from 0; that of layer i is stream i + 1.

    Returns
    -------
    feature_TI : float, shape (T, len(target_layer_ids) D)

    Raises
    ------
    ValueError
        A layer is the last or none: what comes out of the last layer is not kept before its norm.
    """
    last = len(hidden_YTD) - 2
    for layer in target_layer_ids:
        if not 0 <= layer < last:
            raise ValueError(f"target_layer_ids: got {layer}, needs layers before the target's last, which is {last}")
    return np.concatenate([hidden_YTD[layer + 1] for layer in target_layer_ids], axis=1)


def extend_context(
    weights: DrafterWeights, context: Context, feature_TI: Float, exact: bool = False, ops: Any = model_ops
) -> Context:
    """Read the features of newly committed tokens; a row depends on its own token and position alone.

    Parameters
    ----------
    weights : DrafterWeights
    context : Context
        Of the P tokens before; not changed.
    feature_TI : float, shape (T, I)
        Of the tokens at positions P..P + T - 1; T may be 0. See `target_features`.
    exact : bool
        Read one token at a time. Then the context is the same bit for bit however the tokens were split over calls; a
        product of several rows rounds them differently.
    ops : namespace
        The functions of `model_ops`, by any backend.

    Returns
    -------
    Context
        Of P + T tokens.

    Raises
    ------
    ShapeError
        A row does not have I features.

    Cost
    ----
    O(T (I D + Y D G M)), and a copy of the context.

    Invariants
    ----------
    - in exact mode the calls leave no trace (test_an_exact_context_does_not_depend_on_how_rounds_were_split)
    - nor do they beyond rounding (test_a_batched_context_equals_the_exact_one_to_rounding)
    - it is what plain decoding leads to (test_the_context_after_tree_rounds_is_that_of_plain_decoding)
    """
    T, I = sizes(feature_TI=feature_TI).values()  # noqa: E741
    if weights.config.feature_size != I:
        raise ShapeError(f"feature_TI: got {I} features a token, needs {weights.config.feature_size}: D for each tap")
    position_T = np.arange(context.length, context.length + T, dtype=np.int32)
    steps = [slice(t, t + 1) for t in range(T)] if exact else [slice(T)]
    parts = [context, *(read_tokens(weights, feature_TI[step], position_T[step], ops) for step in steps)]
    return Context(
        np.concatenate([part.key_YPGM for part in parts], axis=1),
        np.concatenate([part.value_YPGM for part in parts], axis=1),
    )


def read_tokens(weights: DrafterWeights, feature_TI: Float, position_T: Index, ops: Any) -> Context:
    """Return the context rows of some tokens; no layer norms them again, all layers read the same c."""
    config = weights.config
    c_TD = ops.rms_norm(ops.linear(feature_TI, weights.fc_DI), weights.hidden_norm, config.rms_norm_eps)
    rows = [keys_and_values(layer, config, c_TD, position_T, ops) for layer in weights.layers]
    return Context(np.stack([key_TGM for key_TGM, _ in rows]), np.stack([value_TGM for _, value_TGM in rows]))


def mask_block(config: DrafterConfig, anchor: int) -> Index:
    """Return the block that asks for a draft: the last known token, then masks."""
    return np.array([anchor] + [config.mask_token_id] * config.draft_len, np.int32)


def draft(
    weights: DrafterWeights,
    embed_VD: Float,
    lm_head_VD: Float,
    context: Context,
    token_T: Index,
    ops: Any = model_ops,
) -> Float:
    """Return the log-probs of the tokens after the anchor, from one pass over the block.

    Parameters
    ----------
    weights : DrafterWeights
    embed_VD, lm_head_VD : float, shape (V, D)
        The target's.
    context : Context
        Of all tokens before the anchor, which is therefore at position `context.length`; not changed.
    token_T : int, shape (block_size,)
        The anchor and L = block_size - 1 masks, as `mask_block` returns them; a token that is known may stand for its
        mask.
    ops : namespace
        The functions of `model_ops`, by any backend.

    Returns
    -------
    logprob_LV : float, shape (L, V), nats
        Row k - 1 is for the token at position `context.length` + k, the position of block row k itself. Given equal
        context bits it has equal bits: the pass always has the same number of rows.

    Raises
    ------
    ShapeError
        A shape does not fit.
    ValueError
        A token is not from 0 to V - 1.

    Cost
    ----
    O(T Y (D^2 + D F + H M (P + T)) + T V D).

    Invariants
    ----------
    - it is what its definition says (test_a_draft_equals_the_definition_written_with_loops)
    - earlier rows see later ones (test_attention_within_the_block_is_not_causal)
    - each row is a distribution (test_each_row_of_a_draft_is_a_distribution)
    """
    size, config = sizes(embed_VD=embed_VD, lm_head_VD=lm_head_VD, token_T=token_T), weights.config
    if size["T"] != config.block_size:
        raise ShapeError(f"token_T: got {size['T']} tokens, needs block_size = {config.block_size}")
    if size["D"] != config.hidden_size:
        raise ShapeError(f"embed_VD: got D = {size['D']}, needs the drafter's hidden_size = {config.hidden_size}")
    position_T = np.arange(context.length, context.length + config.block_size, dtype=np.int32)
    x_TD = ops.embed(token_T, embed_VD)
    for layer, key_PGM, value_PGM in zip(weights.layers, context.key_YPGM, context.value_YPGM, strict=True):
        h_TD = ops.rms_norm(x_TD, layer.input_layernorm, config.rms_norm_eps)
        key_TGM, value_TGM = keys_and_values(layer, config, h_TD, position_T, ops)
        q_THM = queries(layer, config, h_TD, position_T, ops)
        mixed_THM = attend(q_THM, np.concatenate([key_PGM, key_TGM]), np.concatenate([value_PGM, value_TGM]))
        x_TD = x_TD + ops.linear(mixed_THM.reshape(len(token_T), -1), layer.o_proj)
        h_TD = ops.rms_norm(x_TD, layer.post_attention_layernorm, config.rms_norm_eps)
        gated_TF = ops.swiglu(ops.linear(h_TD, layer.mlp.gate_FD), ops.linear(h_TD, layer.mlp.up_FD))
        x_TD = x_TD + ops.linear(gated_TF, layer.mlp.down_DF)
    return log_softmax(ops.linear(ops.rms_norm(x_TD[1:], weights.norm, config.rms_norm_eps), lm_head_VD))


def queries(layer: DrafterLayer, config: DrafterConfig, h_TD: Float, position_T: Index, ops: Any) -> Float:
    """Return the queries of all heads, normed and rotated, shape (T, H, M)."""
    q_THM = ops.linear(h_TD, layer.q_proj).reshape(len(h_TD), config.num_attention_heads, config.head_dim)
    return norm_and_rotate(q_THM, layer.q_norm, config, position_T, ops)


def keys_and_values(
    layer: DrafterLayer, config: DrafterConfig, x_TD: Float, position_T: Index, ops: Any
) -> tuple[Float, Float]:
    """Return the keys, normed and rotated, and the values, both (T, G, M): of the context and the block alike."""
    shape = len(x_TD), config.num_key_value_heads, config.head_dim
    key_TGM = norm_and_rotate(ops.linear(x_TD, layer.k_proj).reshape(shape), layer.k_norm, config, position_T, ops)
    return key_TGM, ops.linear(x_TD, layer.v_proj).reshape(shape)


def norm_and_rotate(x_THM: Float, weight_M: Float, config: DrafterConfig, position_T: Index, ops: Any) -> Float:
    """Norm each head by itself, then rotate all of it by its absolute position."""
    normed_THM = ops.rms_norm(x_THM.reshape(-1, config.head_dim), weight_M, config.rms_norm_eps).reshape(x_THM.shape)
    scale = config.yarn.rope_scale if config.yarn else 1.0
    inv_freq_J = inverse_frequencies(config.head_dim, config.rope_theta, config.yarn)
    rotated_THM: Float = ops.rope(normed_THM, position_T, inv_freq_J, scale, interleave=False)
    return rotated_THM


def attend(q_THM: Float, key_SGM: Float, value_SGM: Float) -> Float:
    """Mix the values of all S rows for each query: softmax(q . k / sqrt(M)) v, shape (T, H, M)."""
    T, H, M = q_THM.shape
    G = key_SGM.shape[1]
    q_GATM = q_THM.reshape(T, G, H // G, M).transpose(1, 2, 0, 3)
    score_GATS = q_GATM @ key_SGM.transpose(1, 2, 0)[:, None] * q_THM.dtype.type(M**-0.5)
    weight_GATS = np.exp(log_softmax(score_GATS))
    mixed_GATM = weight_GATS @ value_SGM.transpose(1, 0, 2)[:, None]
    return mixed_GATM.transpose(2, 0, 1, 3).reshape(T, H, M)


def log_softmax(x: Float) -> Float:
    """Return x - log(sum(exp(x))) along the last axis."""
    above = x - x.max(axis=-1, keepdims=True)
    return np.asarray(above - np.log(np.exp(above).sum(axis=-1, keepdims=True)))
