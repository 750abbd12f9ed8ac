"""Every spelling of a config.json that Hugging Face writes, and every one that is not supported."""

import re
from copy import deepcopy
from dataclasses import replace

import pytest
from model_fixtures import INT4, SOFTMAX, YARN, hf_config, tiny_config

from kdtree.hf_config import parse_config, read_config
from kdtree.loading import ModelError
from kdtree.reference.config import Yarn


def both_rope_keys(config):
    config["rope_scaling"] = dict(config["rope_parameters"])


def theta_beside_parameters(config):
    config["rope_theta"] = config["rope_parameters"].pop("rope_theta")


def both_type_keys(config):
    config["rope_parameters"]["type"] = "yarn"


def length_beside_parameters(config):
    key = "original_max_position_embeddings"
    config[key] = config["rope_parameters"].pop(key)


def nulls(config):
    for key in ("attention_bias", "hidden_act", "moe_layer_freq", "num_key_value_heads", "scoring_func", "topk_method"):
        config[key] = None


def defaults(config):
    for key in (
        "attention_bias", "hidden_act", "moe_layer_freq", "num_key_value_heads", "scoring_func", "topk_method",
        "norm_topk_prob", "rope_interleave", "tie_word_embeddings",
    ):  # fmt: skip
        del config[key]


SPELLINGS = (
    {},
    {"old": True},
    {"wrapped": True},
    {"old": True, "wrapped": True},
    {"model_type": "kimi_k2"},
    {"wrapped": True, "model_type": "deepseek_v3"},
    {"wrapped": True, "model_type": None},
    {"transformers_version": "5.24.0", "head_dim": 4, "qk_head_dim": 12, "ep_size": 1, "seq_aux": True},
)
EDITS = (both_rope_keys, theta_beside_parameters, both_type_keys, length_beside_parameters, nulls, defaults)


@pytest.mark.parametrize("yarn", [YARN, Yarn(40.0, 64), replace(YARN, attention_factor=1.5, truncate=False), None])
@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_every_spelling_of_a_config_gives_the_same_model(spelling, yarn):
    config = tiny_config(yarn=yarn)
    assert parse_config(hf_config(config, **spelling)) == config


@pytest.mark.parametrize("edit", EDITS)
def test_keys_may_be_absent_null_or_given_twice(edit):
    config = hf_config(tiny_config())
    edit(config)
    assert parse_config(config) == tiny_config()


def test_a_config_is_not_changed_by_reading_it():
    for spelling in SPELLINGS:
        config = hf_config(tiny_config(), int4=True, **spelling)
        before = deepcopy(config)
        parse_config(config)
        assert config == before


def test_without_an_original_length_yarn_starts_from_the_models():
    config = hf_config(tiny_config())
    del config["rope_parameters"]["original_max_position_embeddings"]
    assert parse_config(config).yarn.original_max_position_embeddings == 512


def test_a_dense_model_need_not_describe_experts():
    config = hf_config(tiny_config(first_k_dense_replace=3))
    for key in ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group", "topk_group"):
        del config[key]
    del config["routed_scaling_factor"]
    assert parse_config(config).first_k_dense_replace == 3


def test_softmax_routing_needs_no_groups_and_no_scale():
    config = hf_config(tiny_config(**SOFTMAX))
    for key in ("n_group", "topk_group", "routed_scaling_factor", "topk_method"):
        config[key] = None
    assert parse_config(config) == tiny_config(**SOFTMAX)


def test_a_wrapper_may_say_outside_that_the_embeddings_are_tied():
    config = hf_config(tiny_config(), wrapped=True, tie_word_embeddings=None)
    assert not read_config(config).tied
    assert read_config(config | {"tie_word_embeddings": True}).tied
    inside = hf_config(tiny_config(), wrapped=True)
    assert not read_config(inside | {"tie_word_embeddings": True}).tied


YARN_KEYS = {"factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1e4}
UNSUPPORTED = [
    ({"model_type": "llama"}, "model_type: got 'llama', needs deepseek_v3, kimi_k2 or kimi_k25"),
    ({"model_type": None}, "model_type: got None"),
    ({"model_type": "kimi_k25"}, "text_config: got None, needs an object"),
    ({"wrapped": True, "model_type": "qwen3"}, "text_config.model_type: got 'qwen3', needs 'deepseek_v3' or 'kimi_k2'"),
    ({"attention_bias": True}, "attention_bias: got True, needs False"),
    ({"hidden_act": "gelu"}, "hidden_act: got 'gelu', needs 'silu'"),
    ({"moe_layer_freq": 2}, "moe_layer_freq: got 2, needs 1"),
    ({"moe_layer_freq": [0, 1, 1]}, "moe_layer_freq: got [0, 1, 1], needs 1"),
    ({"num_key_value_heads": 1}, "num_key_value_heads: got 1, needs 2"),
    ({"scoring_func": "tanh"}, "scoring_func: got 'tanh', needs 'sigmoid' or 'softmax'"),
    ({"topk_method": "greedy"}, "topk_method: got 'greedy', needs 'noaux_tc'"),
    ({"scoring_func": "softmax"}, "topk_method: got 'noaux_tc', needs 'greedy'"),
    ({"scoring_func": "softmax", "topk_method": None}, "n_group: got 4, needs 1"),
    ({**SOFTMAX, "topk_method": None, "routed_scaling_factor": 2.5}, "routed_scaling_factor: got 2.5, needs 1"),
    ({"qk_rope_head_dim": 7}, "qk_rope_head_dim: got 7, needs an even number"),
    ({"qk_rope_head_dim": 1}, "qk_rope_head_dim: got 1, needs an even number"),
    ({"n_group": 3}, "n_group: got 3, needs a divisor of 8"),
    ({"n_group": None}, "n_group: got None, needs an integer, 1 or more"),
    ({"num_experts_per_tok": 9}, "num_experts_per_tok: got 9"),
    ({"moe_intermediate_size": 0}, "moe_intermediate_size: got 0, needs an integer, 1 or more"),
    ({"hidden_size": None}, "hidden_size: got None, needs an integer"),
    ({"hidden_size": "64"}, "hidden_size: got '64', needs an integer"),
    ({"num_hidden_layers": 3.0}, "num_hidden_layers: got 3.0, needs an integer"),
    ({"num_hidden_layers": True}, "num_hidden_layers: got True, needs an integer"),
    ({"vocab_size": -1}, "vocab_size: got -1, needs an integer, 1 or more"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps: got nan, needs a number"),
    ({"rms_norm_eps": 10**400}, "needs a number"),
    ({"routed_scaling_factor": None}, "routed_scaling_factor: got None, needs a number"),
    ({"norm_topk_prob": 1}, "norm_topk_prob: got 1, needs true or false"),
    ({"rope_parameters": {"rope_type": "default"}}, "rope_theta: got None, needs a number, more than 1"),
    ({"rope_parameters": [1]}, "rope_parameters: got [1], needs an object"),
    ({"rope_parameters": {"rope_type": "llama3"}}, "rope_parameters.rope_type: got 'llama3', needs 'default' or"),
    ({"old": True, "rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling.rope_type: got 'linear'"),
    ({"rope_parameters": {"rope_type": "yarn", "type": "linear"}}, "rope_type: got 'yarn' and 'linear'"),
    ({"rope_parameters": {"factor": 4.0, "rope_theta": 1e4}}, "rope_parameters.factor: got 4.0, needs no such key"),
    ({"rope_parameters": {**YARN_KEYS, "rope_type": "yarn", "short": 1}}, "rope_parameters.short: got 1"),
    ({"rope_parameters": {**YARN_KEYS, "rope_type": "yarn", "factor": 0.5}}, "factor: got 0.5, needs a number, 1 or"),
    ({"rope_parameters": {**YARN_KEYS, "rope_type": "yarn", "factor": None}}, "factor: got None, needs a number"),
    ({"rope_parameters": {**YARN_KEYS, "rope_type": "yarn", "beta_slow": 0}}, "beta_slow: got 0, needs a number, more"),
    ({"rope_theta": 5e4}, "rope_theta: got 10000.0 and 50000.0, needs the same where it is given twice"),
    ({"rope_scaling": {"type": "default"}, "rope_theta": 1e4}, "rope_parameters and rope_scaling: got"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings: got 'no', needs true or false"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), UNSUPPORTED, ids=[message for _, message in UNSUPPORTED])
def test_a_config_that_is_not_supported_is_refused_by_name(changes, message):
    with pytest.raises(ModelError, match=re.escape(message)):
        parse_config(hf_config(tiny_config(), **changes))


SCHEMES = [
    ({"quant_method": "fp8"}, {}, "quantization_config.quant_method: got 'fp8', needs 'compressed-tensors'"),
    ({"format": "int-quantized"}, {}, "quantization_config.format: got 'int-quantized', needs 'pack-quantized'"),
    ({"kv_cache_scheme": {"num_bits": 8}}, {}, "quantization_config.kv_cache_scheme: got"),
    ({"sparsity_config": {"format": "dense"}}, {}, "quantization_config.sparsity_config: got"),
    ({"config_groups": {}}, {}, "number of groups: got 0, needs 1"),
    ({"config_groups": None}, {}, "quantization_config.config_groups: got None, needs an object"),
    ({}, {"num_bits": 8}, "weights.num_bits: got 8, needs 4"),
    ({}, {"type": "float"}, "weights.type: got 'float', needs 'int'"),
    ({}, {"symmetric": False}, "weights.symmetric: got False, needs True"),
    ({}, {"strategy": "channel"}, "weights.strategy: got 'channel', needs 'group'"),
    ({}, {"group_size": 128}, "weights.group_size: got 128, needs 32"),
    ({}, {"dynamic": True}, "weights.dynamic: got True, needs False"),
    ({}, {"actorder": "group"}, "weights.actorder: got 'group', needs None"),
]


@pytest.mark.parametrize(("top", "weights", "message"), SCHEMES, ids=[message for *_, message in SCHEMES])
def test_another_quantisation_is_refused_by_name(top, weights, message):
    scheme = deepcopy(INT4)
    scheme["config_groups"]["group_0"]["weights"] |= weights
    with pytest.raises(ModelError, match=re.escape(message)):
        parse_config(hf_config(tiny_config(), quantization_config=scheme | top))


@pytest.mark.parametrize("key", ["input_activations", "output_activations", "format"])
def test_quantised_activations_and_another_format_are_refused(key):
    scheme = deepcopy(INT4)
    scheme["config_groups"]["group_0"][key] = {"num_bits": 8}
    with pytest.raises(ModelError, match=f"config_groups.group_0.{key}: got"):
        parse_config(hf_config(tiny_config(), quantization_config=scheme))


def test_the_supported_quantisation_is_seen():
    assert read_config(hf_config(tiny_config(), int4=True)).int4
    assert not read_config(hf_config(tiny_config())).int4


@pytest.mark.parametrize("extreme", [{"beta_fast": 1e-320}, {"mscale_all_dim": 1e200}])
def test_rotary_settings_that_overflow_are_refused(extreme):
    config = hf_config(tiny_config())
    with pytest.raises(ModelError):
        parse_config({**config, "rope_parameters": {**config["rope_parameters"], **extreme}})
