"""A second truth of the whole model: one token, one head and one expert at a time, keys and values expanded."""

import numpy as np

from kdtree.reference.weights import Mlp


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean() + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def mlp(w, x):
    return w.down_DF @ (silu(w.gate_FD @ x) * (w.up_FD @ x))


def frequencies(config):
    """Return the angle per position of each pair, straight from the text of model.md 1.4."""
    R, theta, yarn = config.qk_rope_head_dim, config.rope_theta, config.yarn
    plain = [theta ** (-2 * j / R) for j in range(R // 2)]
    if yarn is None:
        return plain

    def corr(turns):
        return R * np.log(yarn.original_max_position_embeddings / (2 * np.pi * turns)) / (2 * np.log(theta))

    low, high = corr(yarn.beta_fast), corr(yarn.beta_slow)
    if yarn.truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, R - 1)
    high += 0.001 * (low == high)
    ramps = [min(max((j - low) / (high - low), 0), 1) for j in range(R // 2)]
    return [f * (1 - ramp) + f / yarn.factor * ramp for f, ramp in zip(plain, ramps, strict=True)]


def rotate(config, x, position):
    """Rotate one vector pair by pair."""
    half = len(x) // 2
    scale = config.yarn.rope_scale if config.yarn else 1.0
    out = np.zeros_like(x)
    for j, f in enumerate(frequencies(config)):
        a, b = (x[2 * j], x[2 * j + 1]) if config.rope_interleave else (x[j], x[j + half])
        cos, sin = np.cos(position * f) * scale, np.sin(position * f) * scale
        out[j], out[j + half] = a * cos - b * sin, b * cos + a * sin
    return out


def experts(config, w, x):
    """Return the output of the routed experts, and of the shared one."""
    z = w.router_ED @ x
    if config.scoring_func == "softmax":
        s = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        choice, scale = s.copy(), 1.0
    else:
        s = 1 / (1 + np.exp(-z))
        choice, scale = s + w.bias_E, config.routed_scaling_factor
        groups = np.split(np.arange(len(s)), config.n_group)
        worth = [sum(sorted(choice[g])[-2:]) for g in groups]
        kept = sorted(range(len(groups)), key=lambda g: (-worth[g], g))[: config.topk_group]
        for g, members in enumerate(groups):
            if g not in kept:
                choice[members] = -np.inf
    chosen = sorted(range(len(s)), key=lambda e: (-choice[e], e))[: config.num_experts_per_tok]
    total = sum(s[e] for e in chosen) if config.norm_topk_prob else 1.0
    y = np.zeros_like(x)
    for e in chosen:
        inner = silu(w.gate_EFD[e] @ x) * (w.up_EFD[e] @ x)
        y = y + s[e] / total * scale * (w.down_EDF[e] @ inner)
    return y + mlp(w.shared, x) if w.shared else y


def run(weights, tokens):
    """Return the logits after every token of one sequence, shape (T, V), in float64."""
    config = weights.config
    H, U, C = config.num_attention_heads, config.qk_nope_head_dim, config.kv_lora_rank
    scale = (U + config.qk_rope_head_dim) ** -0.5 * (config.yarn.score_scale if config.yarn else 1.0)
    caches = [[] for _ in weights.layers]
    logits = []
    for position, token in enumerate(tokens):
        x = weights.embed_VD[token].astype(np.float64)
        for layer, cache in zip(weights.layers, caches, strict=True):
            w = layer.attention
            h = norm(x, layer.input_layernorm, config.rms_norm_eps)
            q_in = h if w.q_a_proj is None else norm(w.q_a_proj @ h, w.q_a_layernorm, 1e-6)
            q = (w.q_proj @ q_in).reshape(H, -1)
            row = w.kv_a_proj_with_mqa @ h
            cache.append((norm(row[:C], w.kv_a_layernorm, 1e-6), rotate(config, row[C:], position)))
            values = []
            for head in range(H):
                q_rope = rotate(config, q[head, U:], position)
                scores = np.array([scale * (q[head, :U] @ (w.k_b_HUC[head] @ c) + q_rope @ r) for c, r in cache])
                p = np.exp(scores - scores.max())
                values.append(sum(p_s / p.sum() * (w.v_b_HMC[head] @ c) for p_s, (c, _) in zip(p, cache, strict=True)))
            x = x + w.o_proj @ np.concatenate(values)
            h = norm(x, layer.post_attention_layernorm, config.rms_norm_eps)
            x = x + (mlp(layer.mlp, h) if isinstance(layer.mlp, Mlp) else experts(config, layer.mlp, h))
        logits.append(weights.lm_head_VD @ norm(x, weights.norm, config.rms_norm_eps))
    return np.array(logits)
