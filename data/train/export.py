"""Write trained models as Hugging Face stores them, in float16."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor

from kdtree.files import atomic_write
from kdtree.reference.config import ModelConfig
from kdtree.reference.drafter_config import DrafterConfig
from kdtree.torch_drafter import TorchDrafter
from sizes import BOS
from target_model import TargetModel

__all__ = ["round_to_half", "save_drafter", "save_target"]

STACKED = {"gate_EFD": "gate_proj", "up_EFD": "up_proj", "down_EDF": "down_proj"}
ROUTING_BIAS = "e_score_correction_bias"  # float32 in every checkpoint


@torch.no_grad()
def round_to_half(model: torch.nn.Module) -> None:
    """Round the parameters to float16 in place, so that what comes after sees what ships."""
    for weight in model.parameters():
        weight.copy_(weight.half().float())


def save_target(model: TargetModel, folder: Path) -> None:
    """Write config.json and model.safetensors of a target."""
    write(folder, target_config(model.config), dict(target_tensors(model.state_dict())))


def save_drafter(model: TorchDrafter, num_target_layers: int, folder: Path) -> None:
    """Write config.json and model.safetensors of a drafter."""
    tensors = {name: half(value) for name, value in model.state_dict().items()}
    write(folder, drafter_config(model.config, num_target_layers), tensors)


def target_tensors(state: Mapping[str, Tensor]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the tensors of a target by their names in a checkpoint, stacked experts one by one."""
    for name, value in state.items():
        module, _, last = name.rpartition(".")
        if last in STACKED:
            for e, matrix in enumerate(value):
                yield f"model.{module}.experts.{e}.{STACKED[last]}.weight", half(matrix)
        elif last == ROUTING_BIAS:
            yield f"model.{name}", value.float().cpu().numpy()
        else:
            yield name if name.startswith("lm_head") else f"model.{name}", half(value)


def half(value: Tensor) -> NDArray[Any]:
    """Return a tensor as float16 in memory of its own; OverflowError if it does not fit."""
    array = np.ascontiguousarray(value.detach().half().cpu().numpy())
    if not np.isfinite(array).all():
        raise OverflowError("a weight does not fit float16")
    return array


def target_config(config: ModelConfig) -> dict[str, Any]:
    """Return the config.json of a target."""
    names = (
        "vocab_size", "hidden_size", "num_hidden_layers", "first_k_dense_replace", "num_attention_heads", "q_lora_rank",
        "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size",
        "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "n_group", "topk_group",
        "norm_topk_prob", "routed_scaling_factor", "rms_norm_eps", "rope_interleave", "max_position_embeddings",
    )  # fmt: skip
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "dtype": "float16",
        **{name: getattr(config, name) for name in names},
        "num_key_value_heads": config.num_attention_heads,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": None,
        "tokenizer": "bytes",
    }


def drafter_config(config: DrafterConfig, num_target_layers: int) -> dict[str, Any]:
    """Return the config.json of a drafter."""
    names = (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
        "intermediate_size", "rms_norm_eps",
    )  # fmt: skip
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": "float16",
        **{name: getattr(config, name) for name in names},
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "num_target_layers": num_target_layers,
        "block_size": config.block_size,
        "dflash_config": {"mask_token_id": config.mask_token_id, "target_layer_ids": list(config.target_layer_ids)},
    }


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write both files, each all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / "model.safetensors") as file:
        file.write(save(dict(tensors), metadata={"format": "pt"}))
    with atomic_write(folder / "config.json") as file:
        file.write((json.dumps(config, indent=2) + "\n").encode())
