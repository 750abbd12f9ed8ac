"""verify_attention on the CPU: products of queries and rows, a softmax over what each slot sees, a mixture of rows.

A slot's result has the same bits whatever stands in other slots, in other batch rows and in rows that it does not see:
its rows are taken in one order, the prefix, then the slots it sees. So it is also what the slot gets alone, behind a
prefix with its ancestors' rows appended.
"""

import math

import numpy as np
from numba import boolean, float32, float64, int32, int64, void

from kdtree.reference.arrays import Bool, Float, Index, integers
from kdtree.reference.verify_attention import Attended, check_attention

from ._jit import device, inp, kernel, out
from ._products import mixtures, one_precision, products

__all__ = ["verify_attention"]

SCORES = 2**18  # formed at once, so that they stay in cache
LOG2_E = 1 / math.log(2)
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fefa0000p-1"), float.fromhex("0x1.cf79abc9e3b3ap-40")  # n LN2_HIGH is exact
ROUND = 1.5 * 2.0**52  # adding and subtracting it rounds to an integer
SERIES = tuple(1 / math.factorial(i) for i in range(13, -1, -1))


def verify_attention(
    q_latent_BNHC: Float,
    q_rope_BNHR: Float,
    kv_BSX: Float,
    prefix_len_B: Index,
    visible_BNN: Bool,
    node_count_B: Index,
    scale: float,
) -> Attended:
    """Let each slot attend to the whole prefix, its ancestors and itself; see `kdtree.reference.verify_attention`."""
    prefix_len_B, node_count_B = integers("prefix_len_B", prefix_len_B), integers("node_count_B", node_count_B)
    check_attention(q_latent_BNHC, q_rope_BNHR, kv_BSX, prefix_len_B, visible_BNN, node_count_B)
    q_latent, q_rope, kv = one_precision(q_latent_BNHC=q_latent_BNHC, q_rope_BNHR=q_rope_BNHR, kv_BSX=kv_BSX)
    visible = np.ascontiguousarray(visible_BNN)
    q_BNHX = np.concatenate([q_latent, q_rope], axis=3)
    attended = Attended(np.zeros_like(q_latent), np.full(q_latent.shape[:3], -np.inf, q_latent.dtype))
    for b, (P, n) in enumerate(zip(prefix_len_B.tolist(), node_count_B.tolist(), strict=True)):
        step = max(1, SCORES // max(1, q_BNHX.shape[2] * (P + n)))
        for start in range(0, n, step):
            some = slice(start, min(start + step, n))
            attended.latent_BNHC[b, some], attended.lse_BNH[b, some] = attend(
                q_BNHX[b, some], kv[b, : P + n], P, visible[b, some], q_latent.shape[3], scale
            )
    return attended


def attend(q_NHX: Float, kv_SX: Float, P: int, visible_NN: Bool, C: int, scale: float) -> tuple[Float, Float]:
    """Return the latents and the log-sum-exps of some slots."""
    (n, H, X), S = q_NHX.shape, len(kv_SX)
    score_NHS = products(q_NHX.reshape(n * H, X), kv_SX[None], np.zeros(n * H, np.int32)).reshape(n, H, S)
    row_NS, count_N, lse_NH = np.empty((n, S), np.int32), np.empty(n, np.int32), np.empty((n, H), score_NHS.dtype)
    weigh = weigh_float32 if score_NHS.dtype == np.float32 else weigh_float64
    weigh(score_NHS, scale, P, visible_NN, row_NS, count_N, lse_NH)
    return mixtures(score_NHS, row_NS, count_N, kv_SX, C), lse_NH


@device
def weigh(score_NHS, scale, P, visible_NN, row_NS, count_N, lse_NH):
    """List the rows that each slot sees, and turn their scores into weights, moved to the front."""
    n, H, S = score_NHS.shape
    exp_S, bits_S = np.empty(S, np.float64), np.empty(S, np.int64)
    for i in range(n):
        count = 0
        for s in range(S):
            if s < P or visible_NN[i, s - P]:
                row_NS[i, count] = s
                count += 1
        count_N[i] = count
        for h in range(H):
            score_S, peak = score_NHS[i, h], -np.inf
            for k in range(count):
                score_S[k] = score_S[row_NS[i, k]] * scale  # which stands at k or behind
                peak = max(peak, score_S[k])
            shift = peak if peak > -np.inf else 0.0
            for k in range(count):
                exp_S[k] = score_S[k] - shift
            total = exponentials(exp_S[:count], bits_S)
            share = 1 / total if total != 0 else 0.0
            for k in range(count):
                score_S[k] = exp_S[k] * share
            lse_NH[i, h] = shift + math.log(total) if total != 0 else -np.inf


@device
def exponentials(x_K, bits_K):
    """Replace each x by exp(x), x at most 0, and return the sum: of four parts, term k in part k mod 4.

    exp(x) = 2^n exp(r) with |r| at most ln(2) / 2 and the series of exp, within an ulp. It is written out to be
    vectorised, with the same bits in every place; a library's exp may differ between a vector and what is left of it.
    """
    power_K = bits_K.view(np.float64)
    for k in range(len(x_K)):
        power_K[k] = x_K[k] * LOG2_E + ROUND
    for k in range(len(x_K)):
        bits_K[k] = (bits_K[k] + 1023) << 52  # the exponent of 2^n, from the last bits of a number rounded to n
    for k in range(len(x_K)):
        x = x_K[k]
        n = (x * LOG2_E + ROUND) - ROUND
        r = (x - n * LN2_HIGH) - n * LN2_LOW
        series = SERIES[0]
        for i in range(1, len(SERIES)):
            series = series * r + SERIES[i]
        x_K[k] = 0.0 if x < -708 else series * power_K[k]
    whole = len(x_K) - len(x_K) % 4
    a = b = c = d = 0.0
    for k in range(0, whole, 4):
        a, b, c, d = a + x_K[k], b + x_K[k + 1], c + x_K[k + 2], d + x_K[k + 3]
    total = (a + b) + (c + d)
    for k in range(whole, len(x_K)):
        total += x_K[k]
    return total


@kernel(
    *(void, out(float32, 3), float32, int64, inp(boolean, 2)),
    *(out(int32, 2), out(int32, 1), out(float32, 2)),
)
def weigh_float32(score_NHS, scale, P, visible_NN, row_NS, count_N, lse_NH):
    """Weigh in float32."""
    weigh(score_NHS, scale, P, visible_NN, row_NS, count_N, lse_NH)


@kernel(
    *(void, out(float64, 3), float64, int64, inp(boolean, 2)),
    *(out(int32, 2), out(int32, 1), out(float64, 2)),
)
def weigh_float64(score_NHS, scale, P, visible_NN, row_NS, count_N, lse_NH):
    """Weigh in float64."""
    weigh(score_NHS, scale, P, visible_NN, row_NS, count_N, lse_NH)
