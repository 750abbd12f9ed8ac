"""The target model: prefill, decoding and the verification of a tree are one function with other positions and masks.

    x = embed[token]
    x = x + attention(norm(x));  x = x + mlp(norm(x))        for each layer
    logits = lm_head(norm(x))

Source: DeepSeek-V3, arXiv 2412.19437; semantics of transformers 5.24.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import model_ops
from .arrays import Bool, Float, Index, sizes
from .config import ModelConfig
from .rope import inverse_frequencies
from .tree_checks import check_room, real_slots
from .weights import Attention, Mlp, Moe, Weights

__all__ = ["LATENT_EPS", "Forward", "forward"]

LATENT_EPS = 1e-6  # of the two norms inside attention; the config's rms_norm_eps is not meant for them


class Forward(NamedTuple):
    """What one pass computes; padded slots hold zeros."""

    logit_BNV: Float  #: for the token after each slot
    hidden_YBND: (
        Float  #: Y + 1 residual streams: the embedding, after each layer but the last, and after the final norm
    )


@dataclass(frozen=True)
class Slots:
    """Where the rows of a pass stand; T rows are the real slots of all trees, row by row."""

    batch_T: NDArray[np.int64]
    slot_T: NDArray[np.int64]
    position_T: Index
    prefix_len_B: Index
    visible_BNN: Bool
    node_count_B: Index

    def spread(self, x_T: Float) -> Float:
        """Return rows as (B, N, ...) with zeros in padded slots."""
        x_BN = np.zeros((*self.visible_BNN.shape[:2], *x_T.shape[1:]), x_T.dtype, like=x_T)
        x_BN[self.batch_T, self.slot_T] = x_T
        return x_BN


def forward(
    weights: Weights,
    kv_YBSX: Float,
    prefix_len_B: Index,
    token_BN: Index,
    position_BN: Index,
    visible_BNN: Bool,
    node_count_B: Index,
    exact: bool = False,
    ops: Any = model_ops,
) -> Forward:
    """Run the model on the slots of a batch of trees behind their cached prefixes.

    A prompt and a single token are trees too: a chain sees all before it, visible_BNN lower triangular.

    Parameters
    ----------
    weights : Weights
        Of float32 or float64, which is the precision of the whole pass.
    kv_YBSX : float, shape (Y, B, S, X)
        Cache of all layers: rows (latent, rotated key), X = C + R. The slots' rows are written at prefix_len + slot.
    prefix_len_B : int, shape (B,)
        Committed rows.
    token_BN, position_BN : int, shape (B, N)
        Tokens and absolute positions: prefix length + depth.
    visible_BNN : bool, shape (B, N, N)
        Which slots each slot sees: itself, and of earlier slots its ancestors.
    node_count_B : int, shape (B,)
        Real slots, 1..N.
    exact : bool
        Run one slot at a time, behind exactly the cache rows that plain decoding of its path would have. Then logits
        and cache rows are those of plain decoding bit for bit; a product of several rows rounds them differently.
    ops : namespace
        The functions of `model_ops`, by any backend.

    Returns
    -------
    Forward

    Raises
    ------
    ShapeError
        Shapes disagree, or the cache is too short for prefix and slots; nothing is written then.
    TreeError
        A node count is out of range.
    ValueError
        A token is not in the vocabulary.

    Invariants
    ----------
    - it computes what Hugging Face computes (test_the_golden_model_comes_out)
    - exact slots are plain decoding, bit for bit (test_exact_slots_equal_plain_decoding_bit_for_bit)
    - batched and exact agree to rounding (test_batched_and_exact_agree_to_rounding)
    """
    check_pass(kv_YBSX, prefix_len_B, token_BN, position_BN, visible_BNN, node_count_B)
    if exact:
        return slot_by_slot(weights, kv_YBSX, prefix_len_B, token_BN, position_BN, visible_BNN, node_count_B, ops)
    batch_T, slot_T = np.nonzero(real_slots(node_count_B, token_BN.shape[1]))
    slots = Slots(batch_T, slot_T, position_BN[batch_T, slot_T], prefix_len_B, visible_BNN, node_count_B)
    config = weights.config
    x_TD = ops.embed(token_BN[batch_T, slot_T], weights.embed_VD)
    hidden = [x_TD]
    for layer, kv_BSX in zip(weights.layers, kv_YBSX, strict=True):
        normed_TD = ops.rms_norm(x_TD, layer.input_layernorm, config.rms_norm_eps)
        x_TD = x_TD + attention(layer.attention, config, normed_TD, kv_BSX, slots, ops)
        normed_TD = ops.rms_norm(x_TD, layer.post_attention_layernorm, config.rms_norm_eps)
        x_TD = x_TD + feed_forward(layer.mlp, config, normed_TD, ops)
        hidden.append(x_TD)
    hidden[-1] = ops.rms_norm(x_TD, weights.norm, config.rms_norm_eps)
    logit_TV = ops.linear(hidden[-1], weights.lm_head_VD)
    return Forward(slots.spread(logit_TV), np.stack([slots.spread(h_TD) for h_TD in hidden]))


def check_pass(
    kv_YBSX: Float, prefix_len_B: Index, token_BN: Index, position_BN: Index, visible_BNN: Bool, node_count_B: Index
) -> None:
    """Raise ShapeError or TreeError before anything is written."""
    size = sizes(
        token_BN=token_BN,
        position_BN=position_BN,
        visible_BNN=visible_BNN,
        node_count_B=node_count_B,
        prefix_len_B=prefix_len_B,
        kv_YBSX=kv_YBSX,
    )
    real_slots(node_count_B, size["N"])
    check_room("kv_YBSX", size["S"], prefix_len_B, node_count_B)


def attention(w: Attention, config: ModelConfig, x_TD: Float, kv_BSX: Float, slots: Slots, ops: Any) -> Float:
    """Multi-head latent attention in its absorbed form; writes the slots' rows of the cache."""
    T, H, U, C = len(x_TD), config.num_attention_heads, config.qk_nope_head_dim, config.kv_lora_rank
    inv_freq_J = np.asarray(inverse_frequencies(config.qk_rope_head_dim, config.rope_theta, config.yarn), like=x_TD)
    rope_scale = config.yarn.rope_scale if config.yarn else 1.0

    def rotate(x_THR: Float) -> Any:
        return ops.rope(x_THR, slots.position_T, inv_freq_J, rope_scale, config.rope_interleave)

    q_in = x_TD if w.q_a_proj is None else ops.rms_norm(ops.linear(x_TD, w.q_a_proj), w.q_a_layernorm, LATENT_EPS)
    q_TH = ops.linear(q_in, w.q_proj).reshape(T, H, -1)
    q_latent_THC = ops.absorb(q_TH[:, :, :U], w.k_b_HUC)
    q_rope_THR = rotate(q_TH[:, :, U:])

    row_TX = ops.linear(x_TD, w.kv_a_proj_with_mqa)
    latent_TC = ops.rms_norm(row_TX[:, :C], w.kv_a_layernorm, LATENT_EPS)
    key_TR = rotate(row_TX[:, None, C:])[:, 0]  # one rotated key for all heads
    place_T = slots.prefix_len_B[slots.batch_T] + slots.slot_T
    kv_BSX[slots.batch_T, place_T] = np.concatenate([latent_TC, key_TR], axis=1)

    mixed_BNHC, _ = ops.verify_attention(
        slots.spread(q_latent_THC),
        slots.spread(q_rope_THR),
        kv_BSX,
        slots.prefix_len_B,
        slots.visible_BNN,
        slots.node_count_B,
        config.attention_scale,
    )
    value_THM = ops.unabsorb(mixed_BNHC[slots.batch_T, slots.slot_T], w.v_b_HMC)
    out_TD: Float = ops.linear(value_THM.reshape(T, -1), w.o_proj)
    return out_TD


def feed_forward(w: Mlp | Moe, config: ModelConfig, x_TD: Float, ops: Any) -> Float:
    """Run the dense MLP, or the routed experts and the shared one."""
    if isinstance(w, Mlp):
        dense_TD: Float = ops.linear(ops.swiglu(ops.linear(x_TD, w.gate_FD), ops.linear(x_TD, w.up_FD)), w.down_DF)
        return dense_TD
    routing = ops.route(
        ops.linear(x_TD, w.router_ED),
        w.bias_E,
        config.num_experts_per_tok,
        config.n_group,
        config.topk_group,
        config.norm_topk_prob,
        config.routed_scaling_factor,
        config.scoring_func,
    )
    y_TD: Float = ops.moe(x_TD, routing.expert_TK, routing.weight_TK, w.gate_EFD, w.up_EFD, w.down_EDF)
    return y_TD + feed_forward(w.shared, config, x_TD, ops) if w.shared else y_TD


def slot_by_slot(
    weights: Weights,
    kv_YBSX: Float,
    prefix_len_B: Index,
    token_BN: Index,
    position_BN: Index,
    visible_BNN: Bool,
    node_count_B: Index,
    ops: Any,
) -> Forward:
    """Run each slot as plain decoding would: alone, behind its prefix and its ancestors, gathered in order of depth."""
    B, N = token_BN.shape
    real_slots(node_count_B, N)
    config = weights.config
    logit_BNV = np.zeros((B, N, config.vocab_size), kv_YBSX.dtype)
    hidden_YBND = np.zeros((config.num_hidden_layers + 1, B, N, config.hidden_size), kv_YBSX.dtype)
    for b, P in enumerate(prefix_len_B.tolist()):
        for i in range(node_count_B[b]):
            path = np.flatnonzero(visible_BNN[b, i, : i + 1])  # slots ascend with depth along a path
            row_S = np.concatenate([np.arange(P), P + path])
            path_kv_YBSX = kv_YBSX[:, b : b + 1, row_S]
            one = forward(
                weights,
                path_kv_YBSX,
                np.array([len(row_S) - 1], np.int32),
                token_BN[b : b + 1, i : i + 1],
                position_BN[b : b + 1, i : i + 1],
                np.ones((1, 1, 1), np.bool_),
                np.ones(1, np.int32),
                ops=ops,
            )
            kv_YBSX[:, b, P + i] = path_kv_YBSX[:, 0, -1]
            logit_BNV[b, i] = one.logit_BNV[0, 0]
            hidden_YBND[:, b, i] = one.hidden_YBND[:, 0, 0]
    return Forward(logit_BNV, hidden_YBND)
