"""Attention of a tree's slots over [prefix | tree], in the space of latents."""

from typing import NamedTuple

import numpy as np

from .arrays import Bool, Float, Index, integers, sizes
from .errors import ShapeError
from .tree_checks import check_room, real_slots

__all__ = ["Attended", "check_attention", "verify_attention"]


class Attended(NamedTuple):
    """Mixed latents, and how much they weigh."""

    latent_BNHC: Float  #: sum of p c over the visible rows; 0 where nothing is visible, and in padded slots
    lse_BNH: Float  #: log of the sum of exp(score), nats; -inf where nothing is visible, and in padded slots


def verify_attention(
    q_latent_BNHC: Float,
    q_rope_BNHR: Float,
    kv_BSX: Float,
    prefix_len_B: Index,
    visible_BNN: Bool,
    node_count_B: Index,
    scale: float,
) -> Attended:
    """Let each slot attend to the whole prefix, its ancestors and itself.

        score[i, h, s] = scale (q_latent[i, h] . c[s] + q_rope[i, h] . r[s]),  (c, r) = kv[s]
        p = softmax of the scores of the visible rows,  latent[i, h] = sum over s of p[s] c[s]

    Parameters
    ----------
    q_latent_BNHC : float, shape (B, N, H, C)
        Absorbed queries.
    q_rope_BNHR : float, shape (B, N, H, R)
        Rotated queries.
    kv_BSX : float, shape (B, S, X), X = C + R
        Rows 0..P-1 are the prefix, rows P..P+N-1 the slots, P = prefix_len. Rows past the last real slot are not read.
    prefix_len_B : int, shape (B,)
    visible_BNN : bool, shape (B, N, N)
        Which slots each slot sees.
    node_count_B : int, shape (B,)
        Real slots, 1..N. What lies in padded slots, NaN included, reaches no real one. NaN in a real slot's row may
        reach slots that do not see it: 0 times NaN is NaN.
    scale : float
        (nope + rope)^-0.5 times YaRN's correction.

    Returns
    -------
    Attended

    Raises
    ------
    ShapeError
        A shape does not fit, the mask is not bool, or the cache is too short for prefix and slots.
    TreeError
        A node count is out of range.

    Cost
    ----
    O(B N H (P + N) (2 C + R)).

    Invariants
    ----------
    - absorbed and expanded attention agree (test_absorbed_attention_equals_expanded_attention)
    - with queries of zero it is the mean of what is visible (test_a_zero_query_averages_what_is_visible)
    - padding reaches nothing (test_nan_in_padded_rows_reaches_no_real_slot)
    """
    prefix_len_B, node_count_B = integers("prefix_len_B", prefix_len_B), integers("node_count_B", node_count_B)
    check_attention(q_latent_BNHC, q_rope_BNHR, kv_BSX, prefix_len_B, visible_BNN, node_count_B)
    C = q_latent_BNHC.shape[3]
    latent_BNHC = np.zeros_like(q_latent_BNHC)
    lse_BNH = np.full(q_latent_BNHC.shape[:3], -np.inf, q_latent_BNHC.dtype)
    for b, (P, n) in enumerate(zip(prefix_len_B.tolist(), node_count_B.tolist(), strict=True)):
        rows_SX = kv_BSX[b, : P + n]
        q_NHX = np.concatenate([q_latent_BNHC[b, :n], q_rope_BNHR[b, :n]], axis=2)
        score_NHS = q_NHX @ rows_SX.T * q_NHX.dtype.type(scale)
        hidden_NS = np.concatenate([np.zeros((n, P), np.bool_), ~visible_BNN[b, :n, :n]], axis=1)
        score_NHS[np.broadcast_to(hidden_NS[:, None], score_NHS.shape)] = -np.inf
        latent_BNHC[b, :n], lse_BNH[b, :n] = softmax_mix(score_NHS, rows_SX[:, :C])
    return Attended(latent_BNHC, lse_BNH)


def check_attention(
    q_latent_BNHC: Float, q_rope_BNHR: Float, kv_BSX: Float, prefix_len_B: Index, visible_BNN: Bool, node_count_B: Index
) -> None:
    """Raise ShapeError or TreeError as `verify_attention` says."""
    size = sizes(
        q_latent_BNHC=q_latent_BNHC,
        q_rope_BNHR=q_rope_BNHR,
        prefix_len_B=prefix_len_B,
        visible_BNN=visible_BNN,
        node_count_B=node_count_B,
        kv_BSX=kv_BSX,
    )
    if visible_BNN.dtype != np.bool_:
        raise ShapeError(f"visible_BNN: got dtype {visible_BNN.dtype}, needs bool")
    C, R = size["C"], size["R"]
    if size["X"] != C + R:
        raise ShapeError(f"kv_BSX: got rows of {size['X']}, needs C + R = {C + R}")
    real_slots(node_count_B, size["N"])
    check_room("kv_BSX", size["S"], prefix_len_B, node_count_B)


def softmax_mix(score_NHS: Float, c_SC: Float) -> tuple[Float, Float]:
    """Return the softmax-weighted mean of the latents and the log-sum-exp; (0, -inf) where every score is -inf."""
    peak_NH1 = score_NHS.max(axis=2, keepdims=True)
    exp_NHS = np.exp(score_NHS - np.where(peak_NH1 == -np.inf, 0, peak_NH1))
    sum_NH1 = exp_NHS.sum(axis=2, keepdims=True)
    with np.errstate(divide="ignore"):
        lse_NH = (peak_NH1 + np.log(sum_NH1))[:, :, 0]
    return exp_NHS @ c_SC / np.where(sum_NH1 == 0, 1, sum_NH1), lse_NH
