"""Load a block-diffusion drafter from a DFlash folder, into plain numpy arrays."""

from os import PathLike, fspath
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from .hf_config import rope
from .hf_tensors import Tensors, one_dtype, open_tensors, parsed
from .hf_values import Json, ModelError, number, one, only, table, whole
from .reference.drafter_config import DrafterConfig, default_target_layer_ids
from .reference.drafter_weights import DrafterLayer, DrafterWeights
from .reference.weights import Mlp

__all__ = ["load_drafter", "parse_drafter_config"]

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
FIXED = {
    "architectures": ["DFlashDraftModel"], "attention_bias": False, "hidden_act": "silu", "is_causal": False,
    "quantization_config": None,
}  # fmt: skip
NEUTRAL = {"input_embedding_scale": 1, "output_multiplier": 1, "final_logit_softcapping": 0}
DRAFT_KEYS = ("block_size", "mask_token_id", "target_layer_ids")


def load_drafter(folder: str | PathLike[str], dtype: DTypeLike = np.float32) -> DrafterWeights:
    """Load a drafter as DFlash stores it; the embedding and the lm_head are the target's.

    Every tensor that the drafter needs must be there, in float32, bfloat16 or float16, and finite, and no other.

    Parameters
    ----------
    folder : str or PathLike
        Holds config.json, and model.safetensors or the shards of a model.safetensors.index.json.
    dtype : type
        np.float32 or np.float64, of all arrays; the cast is exact. A drafter needs the precision of its target.

    Returns
    -------
    DrafterWeights

    Raises
    ------
    ModelError
        The config is not supported (see `parse_drafter_config`), or a file or a tensor is missing, malformed, of
        another shape or dtype, unknown, or not finite. The message names it.
    OSError
        A file cannot be read.

    Invariants
    ----------
    - what was written is loaded (test_a_drafter_is_loaded_as_it_was_written)
    - a folder with one fault is refused by name (test_a_drafter_with_one_wrong_tensor_is_refused_by_name)

    Examples
    --------
    >>> load_drafter("no/such/folder")
    Traceback (most recent call last):
    kdtree.hf_values.ModelError: no/such/folder/config.json: no such file
    """
    precision = one_dtype(dtype)
    folder = Path(fspath(folder))
    config = parsed(folder / "config.json", parse_drafter_config)
    with open_tensors(folder, precision) as tensors:
        weights = read_weights(tensors, config)
        tensors.check_all_taken("drafter")
        return weights


def parse_drafter_config(given: Json) -> DrafterConfig:
    """Return the drafter that a DFlash config.json describes.

    block_size, mask_token_id and target_layer_ids stand in `dflash_config` or beside it. Without target_layer_ids they
    follow from num_target_layers; without head_dim it is hidden_size / num_attention_heads. A null is the same as no
    key. Rotary settings are read as those of a target.

    Raises
    ------
    ModelError
        A key is missing or has a value that is not supported: a sliding window, a bias, causal attention, scaled or
        capped logits, the second DFlash architecture. The message names the key.

    Invariants
    ----------
    - every spelling gives the same drafter (test_every_spelling_of_a_drafter_config_gives_the_same_drafter)
    - what is not supported is refused by name (test_a_drafter_config_that_is_not_supported_is_refused_by_name)
    """
    draft = table("dflash_config", given.get("dflash_config") or {})
    for key in sorted(draft.keys() - NEUTRAL.keys() - set(DRAFT_KEYS)):
        raise ModelError(f"dflash_config.{key}: got {draft[key]!r}, needs no such key")
    for key, neutral in NEUTRAL.items():
        only(key, one(key, draft.get(key), given.get(key)), neutral)
    for key, needed in FIXED.items():
        only(key, given.get(key), needed)
    sizes = {key: whole(given, key, least=1) for key in SIZES}
    check_attention_kinds(given, sizes["num_hidden_layers"])
    own = {key: one(key, draft.get(key), given.get(key)) for key in DRAFT_KEYS}
    rotary = rope(given)
    try:
        return DrafterConfig(
            **sizes,
            head_dim=whole(given, "head_dim", default=sizes["hidden_size"] // sizes["num_attention_heads"]),
            rms_norm_eps=number(given, "rms_norm_eps", least=0),
            rope_theta=rotary["rope_theta"],
            yarn=rotary["yarn"],
            block_size=whole(own, "block_size"),
            mask_token_id=whole(own, "mask_token_id"),
            target_layer_ids=taps(own, given),
        )
    except ModelError:
        raise
    except ValueError as error:
        raise ModelError(str(error)) from None


def check_attention_kinds(given: Json, layers: int) -> None:
    """Raise ModelError unless all layers see the whole context; Hugging Face derives `layer_types` if it is missing."""
    kinds = given.get("layer_types")
    only("layer_types", kinds, ["full_attention"] * layers)
    if kinds is None:
        only("use_sliding_window", given.get("use_sliding_window"), False)


def taps(own: Json, given: Json) -> tuple[int, ...]:
    """Return target_layer_ids, by default those of the formula."""
    ids = own["target_layer_ids"]
    if ids is None:
        return default_target_layer_ids(whole(given, "num_target_layers"), whole(given, "num_hidden_layers"))
    if not isinstance(ids, list):
        raise ModelError(f"target_layer_ids: got {ids!r}, needs a list of layers")
    return tuple(whole({"target_layer_ids": layer}, "target_layer_ids") for layer in ids)


def read_weights(tensors: Tensors, config: DrafterConfig) -> DrafterWeights:
    """Take every tensor of the drafter."""
    D = config.hidden_size
    return DrafterWeights(
        config=config,
        fc_DI=tensors.floats("fc.weight", D, config.feature_size),
        hidden_norm=tensors.floats("hidden_norm.weight", D),
        layers=tuple(read_layer(tensors, config, f"layers.{index}") for index in range(config.num_hidden_layers)),
        norm=tensors.floats("norm.weight", D),
    )


def read_layer(tensors: Tensors, config: DrafterConfig, name: str) -> DrafterLayer:
    """Take the tensors of one layer."""
    D, F, M = config.hidden_size, config.intermediate_size, config.head_dim
    HM, GM = config.num_attention_heads * M, config.num_key_value_heads * M
    return DrafterLayer(
        input_layernorm=tensors.floats(f"{name}.input_layernorm.weight", D),
        q_proj=tensors.floats(f"{name}.self_attn.q_proj.weight", HM, D),
        k_proj=tensors.floats(f"{name}.self_attn.k_proj.weight", GM, D),
        v_proj=tensors.floats(f"{name}.self_attn.v_proj.weight", GM, D),
        o_proj=tensors.floats(f"{name}.self_attn.o_proj.weight", D, HM),
        q_norm=tensors.floats(f"{name}.self_attn.q_norm.weight", M),
        k_norm=tensors.floats(f"{name}.self_attn.k_norm.weight", M),
        post_attention_layernorm=tensors.floats(f"{name}.post_attention_layernorm.weight", D),
        mlp=Mlp(
            gate_FD=tensors.floats(f"{name}.mlp.gate_proj.weight", F, D),
            up_FD=tensors.floats(f"{name}.mlp.up_proj.weight", F, D),
            down_DF=tensors.floats(f"{name}.mlp.down_proj.weight", D, F),
        ),
    )
