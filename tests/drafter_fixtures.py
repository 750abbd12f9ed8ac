"""Tiny random drafters, and the folders that DFlash would write of them."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from model_fixtures import TINY
from safetensors.numpy import save_file

from kdtree.reference.block_diffusion import draft, empty_context, extend_context, target_features
from kdtree.reference.config import Yarn
from kdtree.reference.drafter_config import DrafterConfig
from kdtree.reference.drafter_weights import DrafterLayer, DrafterWeights
from kdtree.reference.weights import Mlp

DRAFTER = DrafterConfig(
    hidden_size=TINY.hidden_size,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=10,
    intermediate_size=44,
    rms_norm_eps=1e-5,
    rope_theta=500.0,
    yarn=Yarn(factor=3.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=0.7),
    block_size=7,
    mask_token_id=60,
    target_layer_ids=(0, 1),
)


def drafter_config(**changes):
    """Return the config of a drafter of 2 layers, every size different, with the named fields changed."""
    return replace(DRAFTER, **changes)


def random_drafter(config=DRAFTER, seed=0, dtype=np.float32):
    """Return seeded weights; the float64 drafter holds the float32 values."""
    rng = np.random.default_rng(seed)
    D, H, G, M = config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim
    F = config.intermediate_size

    def matrix(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32).astype(dtype)

    def norm(size):
        return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32).astype(dtype)

    layers = tuple(
        DrafterLayer(
            input_layernorm=norm(D),
            q_proj=matrix(H * M, D),
            k_proj=matrix(G * M, D),
            v_proj=matrix(G * M, D),
            o_proj=matrix(D, H * M),
            q_norm=norm(M),
            k_norm=norm(M),
            post_attention_layernorm=norm(D),
            mlp=Mlp(gate_FD=matrix(F, D), up_FD=matrix(F, D), down_DF=matrix(D, F)),
        )
        for _ in range(config.num_hidden_layers)
    )
    return DrafterWeights(config, matrix(D, config.feature_size), norm(D), layers, norm(D))


def random_hidden(tokens, seed=0, dtype=np.float32):
    """Return streams of the tiny target, as large as those of trained models are."""
    rng = np.random.default_rng(seed)
    return (3 * rng.standard_normal((TINY.num_hidden_layers + 1, tokens, TINY.hidden_size))).astype(dtype)


def context_of(weights, hidden_YTD, exact=False):
    """Return the context of a prompt, read in one call."""
    features = target_features(hidden_YTD, weights.config.target_layer_ids)
    return extend_context(weights, empty_context(weights), features, exact)


def draft_after(weights, target, context, token_T):
    """Return the drafts of a block."""
    return draft(weights, target.embed_VD, target.lm_head_VD, context, token_T)


def same_bits(left, right):
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def repeat_heads(weights):
    """Return the drafter that has a key-value head of its own for each query head, and computes the same."""
    config = weights.config
    times = config.num_attention_heads // config.num_key_value_heads

    def repeat(matrix):
        heads = matrix.reshape(config.num_key_value_heads, config.head_dim, -1)
        return np.repeat(heads, times, axis=0).reshape(-1, matrix.shape[1])

    layers = (replace(layer, k_proj=repeat(layer.k_proj), v_proj=repeat(layer.v_proj)) for layer in weights.layers)
    return replace(
        weights, config=replace(config, num_key_value_heads=config.num_attention_heads), layers=tuple(layers)
    )


def tensors_of(weights):
    """Return the tensors of a checkpoint by their names in it."""
    tensors = {"fc": weights.fc_DI, "hidden_norm": weights.hidden_norm, "norm": weights.norm}
    for index, layer in enumerate(weights.layers):
        parts = {
            "input_layernorm": layer.input_layernorm,
            **{f"self_attn.{name}": getattr(layer, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
            **{f"self_attn.{name}": getattr(layer, name) for name in ("q_norm", "k_norm")},
            "post_attention_layernorm": layer.post_attention_layernorm,
            "mlp.gate_proj": layer.mlp.gate_FD,
            "mlp.up_proj": layer.mlp.up_FD,
            "mlp.down_proj": layer.mlp.down_DF,
        }
        tensors |= {f"layers.{index}.{name}": array for name, array in parts.items()}
    return {f"{name}.weight": np.ascontiguousarray(array) for name, array in tensors.items()}


def config_json(config):
    """Return config.json as DFlash writes it."""
    given = {
        key: value
        for key, value in asdict(config).items()
        if key not in ("yarn", "block_size", "mask_token_id", "target_layer_ids")
    }
    return given | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "attention_bias": False,
        "hidden_act": "silu",
        "layer_types": ["full_attention"] * config.num_hidden_layers,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "vocab_size": TINY.vocab_size,
        "num_target_layers": TINY.num_hidden_layers,
        "max_position_embeddings": 512,
        "rope_scaling": asdict(config.yarn) | {"rope_type": "yarn"} if config.yarn else None,
        "block_size": config.block_size,
        "dflash_config": {"mask_token_id": config.mask_token_id, "target_layer_ids": list(config.target_layer_ids)},
    }


def write_drafter(folder, weights, *, dtype=np.float32, given=None, tensors=None):
    """Write a drafter's folder; `given` and `tensors` stand for its config.json and its tensors."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_json(weights.config) if given is None else given))
    tensors = tensors_of(weights) if tensors is None else tensors
    save_file({name: array.astype(dtype) for name, array in tensors.items()}, folder / "model.safetensors")
    return folder
