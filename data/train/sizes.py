"""The two sizes in which the pair is trained: `full` on a GPU, `pilot` on two CPU cores."""

from dataclasses import dataclass

from kdtree.reference.config import ModelConfig
from kdtree.reference.drafter_config import DrafterConfig

__all__ = ["BOS", "MASK", "SEED", "SIZES", "Size"]

BOS, MASK = 256, 257  # behind the 256 bytes; every file begins with BOS
SEED = 0


@dataclass(frozen=True)
class Stage:
    """How long, and on how much at once, a model is trained."""

    steps: int
    batch: int  #: texts a step
    peak_lr: float


@dataclass(frozen=True)
class Size:
    """A pair of models and how they are trained."""

    name: str
    target: ModelConfig
    drafter: DrafterConfig
    context: int  #: tokens of a text, of both models
    target_stage: Stage
    drafter_stage: Stage
    anchors: int  #: blocks of a text that the drafter is trained on at once
    rollouts: int  #: texts that the target writes for the drafter


def byte_model(**sizes: int) -> ModelConfig:
    """Return a target over bytes; what is not given is the same in both sizes."""
    return ModelConfig(
        vocab_size=258, first_k_dense_replace=1, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,
        norm_topk_prob=True, routed_scaling_factor=2.827, scoring_func="sigmoid", rms_norm_eps=1e-6, rope_theta=10000.0,
        rope_interleave=True, yarn=None, **sizes,
    )  # fmt: skip


def byte_drafter(**sizes: int | tuple[int, ...]) -> DrafterConfig:
    """Return a drafter over bytes."""
    return DrafterConfig(rms_norm_eps=1e-6, rope_theta=10000.0, yarn=None, mask_token_id=MASK, **sizes)  # type: ignore[arg-type]


SIZES = {
    "full": Size(
        name="full",
        target=byte_model(
            hidden_size=256, num_hidden_layers=4, num_attention_heads=8, q_lora_rank=96, kv_lora_rank=64,
            qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, intermediate_size=704, moe_intermediate_size=128,
            n_routed_experts=8, max_position_embeddings=512,
        ),
        drafter=byte_drafter(
            hidden_size=256, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, head_dim=32,
            intermediate_size=512, block_size=16, target_layer_ids=(0, 1, 2),
        ),
        context=512,
        target_stage=Stage(steps=8000, batch=64, peak_lr=2e-3),
        drafter_stage=Stage(steps=8000, batch=64, peak_lr=1e-3),
        anchors=64,
        rollouts=32768,
    ),
    "pilot": Size(
        name="pilot",
        target=byte_model(
            hidden_size=128, num_hidden_layers=3, num_attention_heads=4, q_lora_rank=48, kv_lora_rank=32,
            qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, intermediate_size=320, moe_intermediate_size=64,
            n_routed_experts=4, max_position_embeddings=160,
        ),
        drafter=byte_drafter(
            hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, head_dim=32,
            intermediate_size=256, block_size=8, target_layer_ids=(0, 1),
        ),
        context=160,
        target_stage=Stage(steps=4800, batch=10, peak_lr=4e-3),
        drafter_stage=Stage(steps=3000, batch=10, peak_lr=2e-3),
        anchors=16,
        rollouts=1024,
    ),
}  # fmt: skip
