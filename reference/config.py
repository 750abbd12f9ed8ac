"""The shape of a target model: what the transformer needs to know besides its weights."""

from dataclasses import dataclass
from math import log

__all__ = ["ModelConfig", "Yarn"]


@dataclass(frozen=True)
class Yarn:
    """Stretch rotary positions from a trained length to `factor` times as many (YaRN, arXiv 2309.00071)."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True

    @property
    def rope_scale(self) -> float:
        """What multiplies cos and sin, and so the rope part of a score by its square."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return mscale(self.factor, self.mscale) / mscale(self.factor, self.mscale_all_dim)
        return mscale(self.factor, 1.0)

    @property
    def score_scale(self) -> float:
        """What multiplies the whole score; 1 unless mscale_all_dim is set."""
        return mscale(self.factor, self.mscale_all_dim) ** 2 if self.mscale_all_dim else 1.0


def mscale(factor: float, weight: float) -> float:
    """Return 0.1 weight ln(factor) + 1; 1 if nothing is stretched."""
    return 1.0 if factor <= 1 else 0.1 * weight * log(factor) + 1.0


@dataclass(frozen=True)
class ModelConfig:
    """A DeepSeek-V3 / Kimi-K2 shaped decoder; names and meanings are those of Hugging Face's config.

    Raises
    ------
    ValueError
        A size is not positive, the rope dimension is odd, or the groups do not fit the experts.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    first_k_dense_replace: int  #: the layers before it have a dense MLP
    num_attention_heads: int
    q_lora_rank: int | None  #: None: queries come from one matrix, without a norm
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    intermediate_size: int
    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    n_shared_experts: int
    n_group: int
    topk_group: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    scoring_func: str  #: "sigmoid" with a selection bias and groups, or "softmax"
    rms_norm_eps: float
    rope_theta: float
    rope_interleave: bool  #: True: neighbours are a pair (DeepSeek, Kimi); False: halves are (NeoX)
    yarn: Yarn | None
    max_position_embeddings: int

    def __post_init__(self) -> None:
        for name in (
            "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "kv_lora_rank",
            "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "max_position_embeddings",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, needs 1 or more")
        at_least_0 = (
            "first_k_dense_replace",
            "intermediate_size",
            "moe_intermediate_size",
            "n_shared_experts",
            "rms_norm_eps",
        )
        for name in at_least_0:
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, needs 0 or more")
        if self.q_lora_rank is not None and self.q_lora_rank < 1:
            raise ValueError(f"q_lora_rank: got {self.q_lora_rank}, needs 1 or more, or None")
        if not self.rope_theta > 0:
            raise ValueError(f"rope_theta: got {self.rope_theta}, needs more than 0")
        if self.qk_rope_head_dim % 2:
            raise ValueError(f"qk_rope_head_dim: got {self.qk_rope_head_dim}, needs an even number: pairs are rotated")
        if self.scoring_func not in ("sigmoid", "softmax"):
            raise ValueError(f"scoring_func: got {self.scoring_func!r}, needs 'sigmoid' or 'softmax'")
        if self.first_k_dense_replace < self.num_hidden_layers:
            self._check_experts()

    def _check_experts(self) -> None:
        E = self.n_routed_experts
        if E < 1 or not 1 <= self.num_experts_per_tok <= E:
            raise ValueError(f"num_experts_per_tok: got {self.num_experts_per_tok}, needs 1 to n_routed_experts = {E}")
        if self.scoring_func == "softmax":
            return
        if self.n_group < 1 or E % self.n_group or E // self.n_group < 2:
            raise ValueError(f"n_group: got {self.n_group}, needs a divisor of {E} experts with 2 or more a group")
        if not 1 <= self.topk_group <= self.n_group:
            raise ValueError(f"topk_group: got {self.topk_group}, needs 1 to n_group = {self.n_group}")
        if self.num_experts_per_tok > self.topk_group * (E // self.n_group):
            most = self.topk_group * (E // self.n_group)
            raise ValueError(
                f"num_experts_per_tok: got {self.num_experts_per_tok}, needs at most {most}: {self.topk_group} groups"
            )

    @property
    def attention_scale(self) -> float:
        """What multiplies a score: (nope + rope)**-0.5, times YaRN's correction; the latent rank has no part in it."""
        plain = float((self.qk_nope_head_dim + self.qk_rope_head_dim) ** -0.5)
        return plain * self.yarn.score_scale if self.yarn else plain
