"""The second truth of verify_attention: form every key and value, as the formula of attention says."""

import numpy as np

from .arrays import Bool, Float, Index

__all__ = ["expanded_attention"]


def expanded_attention(
    q_nope_BNHU: Float,
    q_rope_BNHR: Float,
    kv_BSX: Float,
    prefix_len_B: Index,
    visible_BNN: Bool,
    node_count_B: Index,
    scale: float,
    k_b_HUC: Float,
    v_b_HMC: Float,
) -> Float:
    """Attend with keys [W_k c | r] and values W_v c of every head: unabsorb(verify_attention(absorb(q))).

    Returns
    -------
    value_BNHM : float, shape (B, N, H, M)
        0 in padded slots.
    """
    B, N, H, _ = q_nope_BNHU.shape
    C = k_b_HUC.shape[2]
    value_BNHM = np.zeros((B, N, H, v_b_HMC.shape[1]), q_nope_BNHU.dtype)
    for b in range(B):
        P, n = int(prefix_len_B[b]), int(node_count_B[b])
        c_SC, r_SR = kv_BSX[b, : P + n, :C], kv_BSX[b, : P + n, C:]
        for i in range(n):
            seen = np.append(np.ones(P, np.bool_), visible_BNN[b, i, :n])
            for h in range(H):
                key_SU, value_SM = c_SC[seen] @ k_b_HUC[h].T, c_SC[seen] @ v_b_HMC[h].T
                score_S = scale * (key_SU @ q_nope_BNHU[b, i, h] + r_SR[seen] @ q_rope_BNHR[b, i, h])
                exp_S = np.exp(score_S - score_S.max(initial=0))
                value_BNHM[b, i, h] = exp_S @ value_SM / exp_S.sum()
    return value_BNHM
