"""Drafters from folders: what is read, and what is refused by name."""

import ml_dtypes
import numpy as np
import pytest
from drafter_fixtures import config_json, drafter_config, random_drafter, tensors_of, write_drafter
from hypothesis import given
from hypothesis import strategies as st

from kdtree.drafter_loading import load_drafter, parse_drafter_config
from kdtree.hf_values import ModelError
from kdtree.reference.drafter_config import default_target_layer_ids

DRAFTER = random_drafter()
CONFIG = DRAFTER.config


@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("yarn", [CONFIG.yarn, None], ids=["yarn", "no yarn"])
def test_a_drafter_is_loaded_as_it_was_written(tmp_path, stored, dtype, yarn):
    weights = random_drafter(drafter_config(yarn=yarn))
    loaded = load_drafter(write_drafter(tmp_path, weights, dtype=stored), dtype)
    assert loaded.config == weights.config
    expected = {name: array.astype(stored).astype(dtype) for name, array in tensors_of(weights).items()}
    assert tensors_of(loaded).keys() == expected.keys()
    for name, array in tensors_of(loaded).items():
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, expected[name])


def test_every_spelling_of_a_drafter_config_gives_the_same_drafter():
    given = config_json(CONFIG)
    nested = {key: value for key, value in given.items() if key != "block_size"}
    nested["dflash_config"] = given["dflash_config"] | {"block_size": CONFIG.block_size, "output_multiplier": 1.0}
    beside = {key: value for key, value in given.items() if key != "dflash_config"} | given["dflash_config"]
    modern = {key: value for key, value in given.items() if key not in ("rope_scaling", "rope_theta")}
    modern["rope_parameters"] = given["rope_scaling"] | {"rope_theta": CONFIG.rope_theta}
    for spelling in (given, nested, beside, modern):
        assert parse_drafter_config(spelling) == CONFIG


def test_what_is_left_out_follows_from_the_rest():
    given = config_json(drafter_config(head_dim=16, num_attention_heads=4)) | {"num_target_layers": 9}
    for key in ("head_dim", "layer_types", "architectures", "attention_bias"):
        del given[key]
    del given["dflash_config"]["target_layer_ids"]
    config = parse_drafter_config(given)
    assert (config.head_dim, config.target_layer_ids) == (16, (1, 6))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size: got None, needs an integer"),
        ({"num_key_value_heads": 4}, "num_key_value_heads: got 4, needs a divisor"),
        ({"num_attention_heads": 0}, "num_attention_heads: got 0"),
        ({"head_dim": 9}, "head_dim: got 9, needs an even number"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps: got 'small'"),
        ({"rope_theta": None}, "rope_theta: got None"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.rope_type: got 'llama3'"),
        ({"architectures": ["DFlash2DraftModel"]}, "architectures: got .'DFlash2DraftModel'"),
        ({"attention_bias": True}, "attention_bias: got True, needs False"),
        ({"hidden_act": "gelu"}, "hidden_act: got 'gelu', needs 'silu'"),
        ({"is_causal": True}, "is_causal: got True, needs False"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: got"),
        ({"layer_types": None, "use_sliding_window": True}, "use_sliding_window: got True, needs False"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: got"),
        ({"final_logit_softcapping": 20.0}, "final_logit_softcapping: got 20.0, needs 0"),
        ({"block_size": None}, "block_size: got None, needs an integer"),
        ({"block_size": 1}, "block_size: got 1, needs 2 or more"),
        ({"mask_token_id": 3}, "mask_token_id: got 60 and 3, needs the same"),
        ({"dflash_config": []}, "mask_token_id: got None"),
        ({"dflash_config": [1]}, "dflash_config: got .1., needs an object"),
        ({"dflash_config": {"mask_token_id": 60, "input_embedding_scale": 2}}, "input_embedding_scale: got 2, needs 1"),
        ({"dflash_config": {"mask_token_id": 60, "selector_rank": 4}}, "dflash_config.selector_rank: got 4, needs no"),
        ({"dflash_config": {"mask_token_id": 60, "target_layer_ids": 1}}, "target_layer_ids: got 1, needs a list"),
        ({"dflash_config": {"mask_token_id": 60, "target_layer_ids": [0, -1]}}, "target_layer_ids: got -1, needs"),
        ({"dflash_config": {"mask_token_id": 60}}, "num_target_layers: got 3, needs 5 or more; give target_layer_ids"),
    ],
)  # fmt: skip
def test_a_drafter_config_that_is_not_supported_is_refused_by_name(tmp_path, changes, message):
    given = config_json(CONFIG) | changes
    with pytest.raises(ModelError, match=f"^{message}"):
        parse_drafter_config(given)
    with pytest.raises(ModelError, match=f"config.json: {message}"):
        load_drafter(write_drafter(tmp_path, DRAFTER, given=given))


K_NORM = "layers.1.self_attn.k_norm.weight"


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("fc.weight", None, "tensor 'fc.weight' is missing"),
        (K_NORM, None, f"tensor '{K_NORM}' is missing"),
        (K_NORM, np.ones(9), rf"model.safetensors: tensor '{K_NORM}' is F32 \(9,\), needs .* \(10,\)"),
        (K_NORM, np.full(10, np.nan), f"model.safetensors: tensor '{K_NORM}' has a value that is not finite"),
        ("fc.bias", np.ones(64), "model.safetensors: tensor 'fc.bias' is not one that this drafter uses"),
        ("layers.2.norm", np.ones(64), "model.safetensors: tensor 'layers.2.norm' is not one that this drafter uses"),
    ],
)
def test_a_drafter_with_one_wrong_tensor_is_refused_by_name(tmp_path, name, array, message):
    tensors = tensors_of(DRAFTER) | {name: array}
    tensors = {name: array for name, array in tensors.items() if array is not None}
    with pytest.raises(ModelError, match=message) as error:
        load_drafter(write_drafter(tmp_path, DRAFTER, tensors=tensors))
    assert str(tmp_path) in str(error.value)


def test_a_folder_without_its_files_and_a_dtype_that_is_none_of_ours_are_refused(tmp_path):
    with pytest.raises(ModelError, match="config.json: no such file"):
        load_drafter(tmp_path)
    (write_drafter(tmp_path, DRAFTER) / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=f"{tmp_path}: no model.safetensors"):
        load_drafter(tmp_path)
    with pytest.raises(ModelError, match="dtype: got float16, needs float32 or float64"):
        load_drafter(tmp_path, np.float16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({name: 0}, f"{name}: got 0, needs 1 or more") for name in (
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size",
        )),
        ({"num_key_value_heads": 4}, "num_key_value_heads: got 4, needs a divisor of num_attention_heads = 6"),
        ({"head_dim": 9}, "head_dim: got 9, needs an even number"),
        ({"block_size": 1}, "block_size: got 1, needs 2 or more"),
        ({"mask_token_id": -1}, "mask_token_id: got -1"),
        ({"target_layer_ids": ()}, r"target_layer_ids: got \(\), needs one or more"),
        ({"target_layer_ids": (0, -1)}, r"target_layer_ids: got \(0, -1\), needs one or more layers, counted from 0"),
    ],
)  # fmt: skip
def test_a_drafter_config_that_does_not_fit_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        drafter_config(**changes)


# Which layers are tapped.


@pytest.mark.parametrize(
    ("target", "layers", "ids"),
    [
        (61, 6, (1, 12, 24, 35, 47, 58)),  # Kimi K2.6
        (36, 5, (1, 9, 17, 25, 33)),  # Qwen3-8B
        (7, 3, (1, 2, 4)),  # 2.5 is rounded to the even 2
        (9, 3, (1, 4, 6)),  # and 3.5 to the even 4
        (61, 1, (30,)),
        (5, 1, (2,)),
        (5, 2, (1, 2)),
        (5, 3, (1, 2, 2)),
    ],
)
def test_taps_are_spread_evenly_and_halves_round_to_even(target, layers, ids):
    assert default_target_layer_ids(target, layers) == ids


@given(st.integers(5, 200), st.integers(1, 40))
def test_taps_ascend_and_stay_clear_of_the_last_layer(target, layers):
    ids = default_target_layer_ids(target, layers)
    assert len(ids) == layers
    assert list(ids) == sorted(ids)
    assert ids[0] >= 1
    assert ids[-1] <= max(target - 3, target // 2)
    assert ids[-1] < target - 1


@pytest.mark.parametrize("target", [0, 1, 4])
def test_a_target_of_four_layers_or_fewer_needs_taps_by_hand(target):
    with pytest.raises(ValueError, match=f"num_target_layers: got {target}, needs 5 or more; give target_layer_ids"):
        default_target_layer_ids(target, 2)
    with pytest.raises(ValueError, match="num_draft_layers: got 0, needs 1 or more"):
        default_target_layer_ids(8, 0)
