"""The weights of a block-diffusion drafter, each matrix [out, in], named as in a DFlash checkpoint."""

from dataclasses import dataclass

from .arrays import Float
from .drafter_config import DrafterConfig
from .weights import Mlp

__all__ = ["DrafterLayer", "DrafterWeights"]


@dataclass(frozen=True)
class DrafterLayer:
    """One layer of H query heads, G key-value heads and M = head_dim numbers a head."""

    input_layernorm: Float  #: (D,)
    q_proj: Float  #: (H M, D)
    k_proj: Float  #: (G M, D); of context and block alike
    v_proj: Float  #: (G M, D); of context and block alike
    o_proj: Float  #: (D, H M)
    q_norm: Float  #: (M,), the same for all heads
    k_norm: Float  #: (M,), the same for all heads
    post_attention_layernorm: Float  #: (D,)
    mlp: Mlp


@dataclass(frozen=True)
class DrafterWeights:
    """A whole drafter but for the embedding and the lm_head, which are the target's; one dtype throughout."""

    config: DrafterConfig
    fc_DI: Float  #: from the features of a token, I = taps * D
    hidden_norm: Float  #: (D,), after fc
    layers: tuple[DrafterLayer, ...]
    norm: Float  #: (D,), before the target's lm_head
