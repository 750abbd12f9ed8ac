"""The files of a checkpoint: what is missing or malformed is refused by name."""

import json
import re

import numpy as np
import pytest
from model_fixtures import hf_config, hf_tensors, random_weights, save_checkpoint, tiny_config
from safetensors.numpy import save_file

from kdtree.loading import ModelError, load_model

SHARD = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def one_file(tmp_path):
    return save_checkpoint(tmp_path, hf_config(tiny_config()), hf_tensors(random_weights()))


@pytest.fixture
def three_shards(tmp_path):
    return save_checkpoint(tmp_path, hf_config(tiny_config()), hf_tensors(random_weights()), shards=3)


def refused(folder, message):
    with pytest.raises(ModelError, match=re.escape(message)):
        load_model(folder)


def test_a_missing_folder_config_or_model_is_named(one_file):
    refused(one_file / "other", "other/config.json: no such file")
    (one_file / "model.safetensors").unlink()
    refused(one_file, f"{one_file}: no model.safetensors and no model.safetensors.index.json, needs one of them")
    (one_file / "config.json").unlink()
    refused(one_file, "config.json: no such file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "got [1], needs an object"),
        (b'{"model_type": "llama"}', "model_type: got 'llama'"),
    ],
)
def test_a_malformed_config_is_refused_with_its_path(one_file, text, message):
    (one_file / "config.json").write_bytes(text)
    refused(one_file, f"{one_file / 'config.json'}: {message}")


def cut(data):
    return data[:-1]


def longer(data):
    return data + b"\0"


def empty(data):
    return b""


def noise(data):
    return bytes(range(256)) * 4


def endless_header(data):
    return (2**63).to_bytes(8, "little") + data[8:]


def unknown_dtype(data):
    return data.replace(b'"F32"', b'"F33"', 1)


@pytest.mark.parametrize("edit", [cut, longer, empty, noise, endless_header, unknown_dtype])
def test_a_malformed_tensor_file_is_refused_by_name(one_file, edit):
    path = one_file / "model.safetensors"
    path.write_bytes(edit(path.read_bytes()))
    refused(one_file, f"{path}: not a readable .safetensors file")


@pytest.mark.parametrize("edit", [cut, empty, noise])
def test_a_malformed_shard_is_refused_by_name(three_shards, edit):
    path = three_shards / SHARD
    path.write_bytes(edit(path.read_bytes()))
    refused(three_shards, f"{path}: not a readable .safetensors file")


def test_a_missing_shard_is_named(three_shards):
    (three_shards / SHARD).unlink()
    refused(three_shards, f"{three_shards / SHARD}: no such file")


def test_a_tensor_that_is_not_in_the_shard_of_the_index_is_named(three_shards):
    index = json.loads((three_shards / INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = SHARD
    (three_shards / INDEX).write_text(json.dumps(index))
    refused(three_shards, f"{SHARD}: tensor 'model.extra.weight' is missing, {INDEX} says that it is here")


def test_a_tensor_that_the_index_does_not_name_is_refused(three_shards):
    index = json.loads((three_shards / INDEX).read_text())
    del index["weight_map"]["model.norm.weight"]
    (three_shards / INDEX).write_text(json.dumps(index))
    refused(three_shards, f"tensor 'model.norm.weight' is here, {INDEX} does not say so")


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", 3, None])
def test_a_shard_lies_in_the_folder_of_its_index(three_shards, shard):
    (three_shards / INDEX).write_text(json.dumps({"weight_map": {"lm_head.weight": shard}}))
    refused(
        three_shards, f"{INDEX}: tensor 'lm_head.weight' is in {shard!r}, needs a .safetensors file in the same folder"
    )


@pytest.mark.parametrize("text", ["{}", '{"weight_map": []}', "{", "[]"])
def test_a_malformed_index_is_refused_with_its_path(three_shards, text):
    (three_shards / INDEX).write_text(text)
    refused(three_shards, str(three_shards / INDEX))


def test_one_file_goes_before_an_index(three_shards):
    other = random_weights(seed=5)
    save_file(hf_tensors(other), three_shards / "model.safetensors")
    np.testing.assert_array_equal(load_model(three_shards).norm, other.norm)
