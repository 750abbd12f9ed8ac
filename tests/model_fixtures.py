"""Tiny random target models, as weights in memory and as the checkpoints that Hugging Face would write of them."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from kdtree.reference.config import ModelConfig, Yarn
from kdtree.reference.int4 import int4_pack, int4_quantize
from kdtree.reference.weights import Attention, Layer, Mlp, Moe, Weights

YARN = Yarn(factor=4.0, original_max_position_embeddings=128, mscale=1.0, mscale_all_dim=0.8)
ATTENTION = ("q_a_proj", "q_a_layernorm", "kv_a_proj_with_mqa", "kv_a_layernorm", "o_proj")
TINY = ModelConfig(
    vocab_size=61,
    hidden_size=64,
    num_hidden_layers=3,
    first_k_dense_replace=1,
    num_attention_heads=2,
    q_lora_rank=12,
    kv_lora_rank=10,
    qk_nope_head_dim=8,
    qk_rope_head_dim=4,
    v_head_dim=6,
    intermediate_size=40,
    moe_intermediate_size=32,
    n_routed_experts=8,
    num_experts_per_tok=3,
    n_shared_experts=1,
    n_group=4,
    topk_group=2,
    norm_topk_prob=True,
    routed_scaling_factor=2.5,
    scoring_func="sigmoid",
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_interleave=True,
    yarn=YARN,
    max_position_embeddings=512,
)
SOFTMAX = {"scoring_func": "softmax", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0}


def tiny_config(**changes):
    """Return the config of a model of 3 layers, every size different, with the named fields changed."""
    return replace(TINY, **changes)


def random_weights(config=TINY, seed=0, dtype=np.float32, *, tied=False):
    """Return seeded weights with logits of order one; the float64 model holds the float32 values."""
    rng = np.random.default_rng(seed)

    def matrix(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32).astype(dtype)

    def norm(size):
        return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32).astype(dtype)

    D = config.hidden_size
    embed_VD = matrix(config.vocab_size, D)
    layers = tuple(
        Layer(
            input_layernorm=norm(D),
            attention=random_attention(config, matrix, norm),
            post_attention_layernorm=norm(D),
            mlp=random_mlp(config.intermediate_size, D, matrix)
            if layer < config.first_k_dense_replace
            else random_moe(config, matrix),
        )
        for layer in range(config.num_hidden_layers)
    )
    return Weights(config, embed_VD, layers, norm(D), embed_VD if tied else matrix(config.vocab_size, D))


def random_attention(config, matrix, norm):
    D, H, C = config.hidden_size, config.num_attention_heads, config.kv_lora_rank
    U, R, M, Q = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim, config.q_lora_rank
    return Attention(
        q_a_proj=matrix(Q, D) if Q else None,
        q_a_layernorm=norm(Q) if Q else None,
        q_proj=matrix(H * (U + R), Q or D),
        kv_a_proj_with_mqa=matrix(C + R, D),
        kv_a_layernorm=norm(C),
        k_b_HUC=matrix(H, U, C),
        v_b_HMC=matrix(H, M, C),
        o_proj=matrix(D, H * M),
    )


def random_mlp(F, D, matrix):
    return Mlp(gate_FD=matrix(F, D), up_FD=matrix(F, D), down_DF=matrix(D, F))


def random_moe(config, matrix):
    E, F, D = config.n_routed_experts, config.moe_intermediate_size, config.hidden_size
    bias_E = matrix(E)
    return Moe(
        router_ED=matrix(E, D),
        bias_E=bias_E if config.scoring_func == "sigmoid" else np.zeros_like(bias_E),
        gate_EFD=matrix(E, F, D),
        up_EFD=matrix(E, F, D),
        down_EDF=matrix(E, D, F),
        shared=random_mlp(F * config.n_shared_experts, D, matrix) if config.n_shared_experts else None,
    )


def hf_tensors(weights, int4=False, dtype=None):
    """Return the tensors of a checkpoint by name, all but the router's bias in `dtype`, routed experts in INT4."""
    tensors = {"model.embed_tokens.weight": weights.embed_VD, "model.norm.weight": weights.norm}
    if weights.lm_head_VD is not weights.embed_VD:
        tensors["lm_head.weight"] = weights.lm_head_VD
    for index, layer in enumerate(weights.layers):
        attention = {name: getattr(layer.attention, name) for name in ATTENTION}
        attention["q_b_proj" if layer.attention.q_a_proj is not None else "q_proj"] = layer.attention.q_proj
        heads = zip(layer.attention.k_b_HUC, layer.attention.v_b_HMC, strict=True)
        attention["kv_b_proj"] = np.concatenate([rows for head in heads for rows in head])
        modules = {f"self_attn.{name}": array for name, array in attention.items() if array is not None}
        modules |= {name: getattr(layer, name) for name in ("input_layernorm", "post_attention_layernorm")}
        modules |= mlp_modules("mlp", layer.mlp) if isinstance(layer.mlp, Mlp) else moe_modules(layer.mlp)
        tensors |= {f"model.layers.{index}.{name}.weight": array for name, array in modules.items()}
        if isinstance(layer.mlp, Moe) and weights.config.scoring_func == "sigmoid":
            tensors[f"model.layers.{index}.mlp.gate.e_score_correction_bias"] = layer.mlp.bias_E
    if dtype is not None:
        tensors = {name: array if "bias" in name else array.astype(dtype) for name, array in tensors.items()}
    return pack_experts(tensors) if int4 else tensors


def mlp_modules(name, mlp):
    return {f"{name}.gate_proj": mlp.gate_FD, f"{name}.up_proj": mlp.up_FD, f"{name}.down_proj": mlp.down_DF}


def moe_modules(moe):
    modules = {"mlp.gate": moe.router_ED}
    for e, matrices in enumerate(zip(moe.gate_EFD, moe.up_EFD, moe.down_EDF, strict=True)):
        modules |= mlp_modules(f"mlp.experts.{e}", Mlp(*matrices))
    return modules | (mlp_modules("mlp.shared_experts", moe.shared) if moe.shared else {})


def pack_experts(tensors):
    """Replace the matrices of routed experts by their INT4 form."""
    packed = {}
    for name, array in tensors.items():
        if ".experts." not in name:
            packed[name] = array
            continue
        code_OI, scale_OG = int4_quantize(array.astype(np.float32))
        packed[f"{name}_packed"] = int4_pack(code_OI)
        packed[f"{name}_scale"] = scale_OG.astype(ml_dtypes.bfloat16)
        packed[f"{name}_shape"] = np.array(array.shape, np.int64)
    return packed


INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32,
                "dynamic": False, "observer": "minmax", "actorder": None,
            },
            "input_activations": None,
            "output_activations": None,
        }
    },
    "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*lm_head.*"],
    "kv_cache_scheme": None,
    "quantization_status": "compressed",
}  # fmt: skip


def hf_config(config, *, old=False, wrapped=False, tied=False, int4=False, **changes):
    """Return the config.json of a model: as transformers 5 writes it, or `old`; `wrapped` is Kimi-K2.5's."""
    given = {key: value for key, value in asdict(config).items() if key not in ("yarn", "rope_theta")}
    rope = {"type" if old else "rope_type": "yarn" if config.yarn else "default"}
    rope |= {key: value for key, value in (asdict(config.yarn) if config.yarn else {}).items() if value is not None}
    if old:
        given |= {"rope_theta": config.rope_theta, "rope_scaling": rope if config.yarn else None}
    else:
        given["rope_parameters"] = rope | {"rope_theta": config.rope_theta}
    given |= {
        "model_type": "kimi_k2" if wrapped else "deepseek_v3",
        "topk_method": "noaux_tc" if config.scoring_func == "sigmoid" else "greedy",
        "hidden_act": "silu",
        "attention_bias": False,
        "moe_layer_freq": 1,
        "num_key_value_heads": config.num_attention_heads,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": tied,
    }
    if int4:
        given["quantization_config"] = INT4
    given |= changes
    return {"model_type": "kimi_k25", "text_config": given, "vision_config": {}} if wrapped else given


def save_checkpoint(folder, config, tensors, *, shards=1, prefix=""):
    """Write config.json and the tensors, dealt out to `shards` files with an index if there is more than one."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {prefix + name: array for name, array in tensors.items()}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    weight_map = {}
    for number in range(1, shards + 1):
        file = f"model-{number:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[number - 1 :: shards]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
