"""The weights of a target model, each matrix [out, in], named as in a Hugging Face checkpoint."""

from dataclasses import dataclass

from .arrays import Float
from .config import ModelConfig

__all__ = ["Attention", "Layer", "Mlp", "Moe", "Weights"]


@dataclass(frozen=True)
class Attention:
    """Multi-head latent attention. kv_b_proj is split per head: its key rows, then its value rows."""

    q_a_proj: Float | None  #: (q_lora_rank, D); None without q-LoRA
    q_a_layernorm: Float | None  #: (q_lora_rank,)
    q_proj: Float  #: (H (U + R), q_lora_rank or D); called q_b_proj with q-LoRA
    kv_a_proj_with_mqa: Float  #: (C + R, D)
    kv_a_layernorm: Float  #: (C,)
    k_b_HUC: Float  #: from latents to the keys of each head, U = qk_nope_head_dim
    v_b_HMC: Float  #: from latents to the values of each head, M = v_head_dim
    o_proj: Float  #: (D, H M)


@dataclass(frozen=True)
class Mlp:
    """A gated MLP: down(silu(gate x) * up x)."""

    gate_FD: Float
    up_FD: Float
    down_DF: Float


@dataclass(frozen=True)
class Moe:
    """Routed experts and one shared MLP."""

    router_ED: Float
    bias_E: Float  #: added to the scores for the choice of experts only; zeros for softmax routing
    gate_EFD: Float
    up_EFD: Float
    down_EDF: Float
    shared: Mlp | None


@dataclass(frozen=True)
class Layer:
    """One decoder layer."""

    input_layernorm: Float
    attention: Attention
    post_attention_layernorm: Float
    mlp: Mlp | Moe


@dataclass(frozen=True)
class Weights:
    """A whole model; every array has one dtype, float32 or float64."""

    config: ModelConfig
    embed_VD: Float
    layers: tuple[Layer, ...]
    norm: Float
    lm_head_VD: Float
