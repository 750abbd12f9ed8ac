"""Read a Hugging Face config.json of DeepSeek-V3, Kimi-K2 or Kimi-K2.5, in any of its spellings."""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from .hf_values import Json, ModelError, expect, number, one, only, switch, table, whole
from .reference.config import ModelConfig, Yarn
from .reference.rope import inverse_frequencies

__all__ = ["HfConfig", "byte_start", "parse_config", "read_config"]

DECODERS = ("deepseek_v3", "kimi_k2")
WRAPPER = "kimi_k25"  # its text_config is a decoder
FIXED = {"attention_bias": False, "hidden_act": "silu", "moe_layer_freq": 1}
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "kv_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim", "max_position_embeddings",
)  # fmt: skip
EXPERTS = ("moe_intermediate_size", "n_routed_experts", "num_experts_per_tok", "n_group", "topk_group")


class HfConfig(NamedTuple):
    """What a config.json says."""

    model: ModelConfig
    tied: bool  #: lm_head is the embedding
    int4: bool  #: the matrices of routed experts are packed INT4
    mtp_layers: int  #: layers for multi-token prediction that may follow the others


def parse_config(config: Json) -> ModelConfig:
    """Return the model that a Hugging Face config describes.

    Sizes and numbers must be there. Switches have the defaults of transformers: rope_interleave and norm_topk_prob
    true, scoring_func sigmoid with topk_method noaux_tc. A null is the same as no key.

    Parameters
    ----------
    config : mapping
        The parsed config.json. `model_type` is deepseek_v3 or kimi_k2, or kimi_k25 with one of these as its
        `text_config`. Rotary settings are `rope_parameters`, or `rope_scaling` with `rope_theta` beside it.

    Raises
    ------
    ModelError
        A key is missing, has a value that is not supported, or two spellings disagree. The message names the key.

    Invariants
    ----------
    - every spelling gives the same model (test_every_spelling_of_a_config_gives_the_same_model)
    - what is not supported is refused by name (test_a_config_that_is_not_supported_is_refused_by_name)

    Examples
    --------
    >>> parse_config({"model_type": "llama"})
    Traceback (most recent call last):
    kdtree.hf_values.ModelError: model_type: got 'llama', needs deepseek_v3, kimi_k2 or kimi_k25
    """
    return read_config(config).model


def read_config(config: Json) -> HfConfig:
    """Return the model and how its weights are stored; raises as `parse_config` does."""
    text = decoder(config)
    for key, needed in FIXED.items():
        only(key, text.get(key), needed)
    only("num_key_value_heads", text.get("num_key_value_heads"), whole(text, "num_attention_heads"))
    quantization = one("quantization_config", text.get("quantization_config"), config.get("quantization_config"))
    if quantization is not None:
        check_int4(quantization)
    tying = text if text.get("tie_word_embeddings") is not None else config
    try:
        model = ModelConfig(**sizes(text), **experts(text), **rope(text))
        check_rotary(model)
    except ModelError:
        raise
    except (ValueError, OverflowError) as error:
        raise ModelError(str(error)) from None
    return HfConfig(
        model=model,
        tied=switch(tying, "tie_word_embeddings", False),
        int4=quantization is not None,
        mtp_layers=whole(text, "num_nextn_predict_layers", default=1),
    )


def byte_start(config: Json) -> list[int] | None:
    """Return the tokens that begin every text of a byte-level model, one or none; None for any other model.

    A byte-level model is one whose config.json has `"tokenizer": "bytes"`: token b is byte b for all 256. Its texts
    begin with `bos_token_id`, if it has that.

    Raises
    ------
    ModelError
        The vocabulary of a byte-level model has no 256 tokens, or bos_token_id is none of them.

    Examples
    --------
    >>> byte_start({"tokenizer": "bytes", "vocab_size": 258, "bos_token_id": 256}), byte_start({"vocab_size": 258})
    ([256], None)
    """
    if config.get("tokenizer") != "bytes":
        return None
    vocab_size = whole(config, "vocab_size", least=256)
    if config.get("bos_token_id") is None:
        return []
    if (start := whole(config, "bos_token_id")) >= vocab_size:
        raise ModelError(f"bos_token_id: got {start}, needs 0 to {vocab_size - 1}")
    return [start]


def check_rotary(model: ModelConfig) -> None:
    """Raise ValueError or OverflowError unless every number that the rotary settings give is finite."""
    frequencies = inverse_frequencies(model.qk_rope_head_dim, model.rope_theta, model.yarn)
    scales = model.attention_scale, model.yarn.rope_scale if model.yarn else 1.0
    if not np.isfinite([*frequencies, *scales]).all():
        raise ValueError(f"rope_parameters: got {model.yarn}, needs settings with finite frequencies and scales")


def decoder(config: Json) -> Json:
    """Return the part of a config that describes the language model."""
    kind = config.get("model_type")
    if kind == WRAPPER:
        text = table("text_config", config.get("text_config"))
        only("text_config.model_type", text.get("model_type"), *DECODERS)
        return text
    if kind not in DECODERS:
        raise ModelError(f"model_type: got {kind!r}, needs {', '.join(DECODERS)} or {WRAPPER}")
    return config


def sizes(text: Json) -> dict[str, Any]:
    """Return the settings of the embedding, the attention and the dense layers."""
    dense = whole(text, "first_k_dense_replace")
    return {
        **{key: whole(text, key, least=1) for key in SIZES},
        "first_k_dense_replace": dense,
        "q_lora_rank": whole(text, "q_lora_rank", default=0) or None,
        "intermediate_size": whole(text, "intermediate_size", least=1 if dense else 0),
        "rms_norm_eps": number(text, "rms_norm_eps", least=0),
    }


def experts(text: Json) -> dict[str, Any]:
    """Return the settings of the mixture of experts; a model without one need not have them."""
    scoring = text.get("scoring_func") or "sigmoid"
    only("scoring_func", scoring, "sigmoid", "softmax")
    only("topk_method", text.get("topk_method"), "noaux_tc" if scoring == "sigmoid" else "greedy")
    if scoring == "softmax":  # groups and a scale are no part of it
        for key in ("n_group", "topk_group", "routed_scaling_factor"):
            only(key, text.get(key), 1)
        text = {**text, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0}
    if whole(text, "first_k_dense_replace") >= whole(text, "num_hidden_layers"):
        given = {key: value for key, value in text.items() if value is not None}
        text = {**dict.fromkeys(EXPERTS, 1), "routed_scaling_factor": 1.0, **given}
    return {
        **{key: whole(text, key, least=1) for key in EXPERTS},
        "n_shared_experts": whole(text, "n_shared_experts", default=0),
        "norm_topk_prob": switch(text, "norm_topk_prob", True),
        "routed_scaling_factor": number(text, "routed_scaling_factor"),
        "scoring_func": scoring,
    }


def rope(text: Json) -> dict[str, Any]:
    """Return the rotary settings, from either spelling of them."""
    spellings = [name for name in ("rope_parameters", "rope_scaling") if text.get(name)] or ["rope_scaling"]
    found: dict[str, Any] = one(" and ".join(spellings), *(rope_table(text, name) for name in spellings))
    return {"rope_interleave": switch(text, "rope_interleave", True), **found}


def rope_table(text: Json, name: str) -> dict[str, Any]:
    """Read `rope_parameters` or `rope_scaling`; the keys beside it complete it."""
    given = dict(table(name, text.get(name) or {}))
    kind = one(f"{name}.rope_type", given.pop("rope_type", None), given.pop("type", None))
    only(f"{name}.rope_type", kind, "default", "yarn")
    theta = one("rope_theta", given.pop("rope_theta", None), text.get("rope_theta"))
    known = {field.name for field in fields(Yarn)} if kind == "yarn" else set()
    for key in sorted(given.keys() - known):
        raise ModelError(f"{name}.{key}: got {given[key]!r}, needs no such key for rope_type {kind or 'default'!r}")
    return {
        "rope_theta": number({"rope_theta": theta}, "rope_theta", above=1),
        "yarn": yarn(given, text) if kind == "yarn" else None,
    }


def yarn(given: Json, text: Json) -> Yarn:
    """Read the settings of YaRN; without an original length it is the model's."""
    length = "original_max_position_embeddings"
    original = one(length, given.get(length), text.get(length))
    return Yarn(
        factor=number(given, "factor", least=1),
        original_max_position_embeddings=whole(
            {length: original}, length, default=whole(text, "max_position_embeddings"), least=1
        ),
        beta_fast=number(given, "beta_fast", default=32.0, above=0),
        beta_slow=number(given, "beta_slow", default=1.0, above=0),
        truncate=switch(given, "truncate", True),
        **{
            key: number(given, key)
            for key in ("mscale", "mscale_all_dim", "attention_factor")
            if given.get(key) is not None
        },
    )


def check_int4(quantization: object) -> None:
    """Raise ModelError unless the weights are quantised as Kimi K2.5 and K2.6 ship them."""
    given = table("quantization_config", quantization)
    expect("quantization_config", given, quant_method="compressed-tensors", format="pack-quantized")
    for key in ("kv_cache_scheme", "sparsity_config", "transform_config"):
        only(f"quantization_config.{key}", given.get(key) or None, None)
    groups = table("quantization_config.config_groups", given.get("config_groups"))
    only("quantization_config.config_groups: number of groups", len(groups), 1)
    name, group = next(iter(groups.items()))
    where = f"quantization_config.config_groups.{name}"
    expect(where, table(where, group), targets=["Linear"])
    only(f"{where}.format", group.get("format"), "pack-quantized")
    for key in ("input_activations", "output_activations"):
        only(f"{where}.{key}", group.get(key), None)
    weights = table(f"{where}.weights", group.get("weights"))
    expect(f"{where}.weights", weights, num_bits=4, type="int", strategy="group", group_size=32)
    for key, needed in (("symmetric", True), ("dynamic", False), ("actorder", None)):
        only(f"{where}.weights.{key}", weights.get(key), needed)
