"""`kdtree record` as a person uses it."""

import json

import numpy as np
import pytest
from drafter_fixtures import drafter_config, random_drafter, write_drafter
from model_fixtures import hf_config, hf_tensors, random_weights, save_checkpoint, tiny_config
from test_cli import good

from kdtree import Seeded, Target, Trace, cli, record
from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.record_models import ModelPair

BYTES = {"tokenizer": "bytes", "bos_token_id": 256}
CONFIG = tiny_config(vocab_size=258, max_position_embeddings=64)
WEIGHTS = random_weights(CONFIG)
DRAFTER = random_drafter(drafter_config(block_size=4, mask_token_id=257))


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a byte-level model, the same model without bytes, a drafter and prompts."""
    save_checkpoint(tmp_path / "model", hf_config(CONFIG, **BYTES), hf_tensors(WEIGHTS))
    save_checkpoint(tmp_path / "plain", hf_config(CONFIG), hf_tensors(WEIGHTS))
    write_drafter(tmp_path / "drafter", DRAFTER)
    prompts = [{"text": "é"}, {"tokens": [5, 17, 200]}]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)) + "\n\n", encoding="utf-8")
    return tmp_path


def test_record_writes_the_trace_of_a_model_and_its_drafter(folder):
    said = good(
        "record", "model", "prompts.jsonl", "--drafter", "drafter/", "--out", "t.kdtr", "--anchors", "12",
        "--temperature", "0.5", "--seed", "3", cwd=folder,
    )  # fmt: skip
    assert said.startswith("wrote t.kdtr: 2 sequences x 12 anchors, L = 3, K = 64\n")
    assert [line.split()[0] for line in said.splitlines()[1:4]] == ["budget", "16", "64"]
    trace = Trace.load(folder / "t.kdtr")
    assert trace.metadata == {
        "vocab_size": "258", "tokens": "bytes", "schema": "kdtree.trace/1", "target": "model", "drafter": "drafter",
        "prompts": "prompts.jsonl", "decoding": "seeded sampling, T = 0.5, seed 3",
    }  # fmt: skip
    assert trace.prompt.tolist() == [[256, 0xC3, 0xA9], [5, 17, 200]]
    pair = ModelPair(Target(WEIGHTS, "numba"), BlockDiffusion(DRAFTER, WEIGHTS, exact=True))
    again = record(pair.drafter, pair.target, [[256, 0xC3, 0xA9], [5, 17, 200]], anchors=12, sampler=Seeded(0.5, 3))
    for name in ("continuation", "topk_ids", "topk_log_probs"):
        np.testing.assert_array_equal(getattr(trace, name), getattr(again, name))
    assert "t.kdtr: 2 sequences" in good("sweep", "t.kdtr", "--budgets", "4", cwd=folder)


def test_a_model_without_bytes_takes_tokens(folder):
    (folder / "prompts.jsonl").write_text('{"tokens": [9]}')
    good(
        "record", "plain", "prompts.jsonl", "--drafter", "drafter", "--out", "t.kdtr", "--anchors", "4", "--ranks", "5",
        cwd=folder,
    )  # fmt: skip
    trace = Trace.load(folder / "t.kdtr")
    assert (trace.K, trace.metadata["decoding"]) == (5, "greedy")
    assert "tokens" not in trace.metadata


FEW = "--anchors", "12"
GOOD_LINE = '{"tokens": [1]}\n'
BAD = [
    ({"--out": "t.npz"}, "", "--out: got t.npz, needs a suffix of .kdtr"),
    ({"--out": "no/t.kdtr"}, "", "--out: got no/t.kdtr, needs the folder no to exist"),
    ({"--drafter": "no-drafter"}, "", "no-drafter"),
    ({"--drafter": "model"}, "", "model/config.json: block_size: got None"),
    ({"model": "drafter"}, "", "drafter/config.json: model_type: got"),
    ({"--anchors": "3"}, "", "--anchors: got 3, needs more than the drafter's L = 3"),
    ({"--anchors": "-3"}, "", "--anchors: got -3, needs more than the drafter's L = 3"),
    ({"--anchors": "64"}, "", "--anchors: got 64, needs less than the model's 64 positions"),
    (
        {"--anchors": "63"},
        '{"tokens": [1, 2]}',
        "line 2: got a prompt of 2 tokens, needs 1 to 1: the model's",
    ),
    ({"--anchors": "x"}, "", "'--anchors': got 'x', needs a whole number"),
    ({"--ranks": "0"}, "", "--ranks: got 0, needs 1 or more"),
    ({"--ranks": "-1"}, "", "--ranks: got -1, needs 1 or more"),
    ({"--seed": "-1"}, "", "--seed: got -1, needs 0 to"),
    ({"--temperature": "-1"}, "", "temperature: got -1.0"),
    ({"model": "no-model"}, "", "no-model"),
    ({"model": "plain"}, '{"text": "a"}', 'line 2: got a text, needs "tokens": the model\'s config.json does not say'),
    ({"prompts": "no.jsonl"}, "", "no.jsonl"),
    ({}, "[1, 2]", "prompts.jsonl, line 2: got '[1, 2]', needs {\"text\""),
    ({}, '{"text": "a", "tokens": [1]}', 'line 2: got \'{"text": "a", "tokens": [1]}\', needs'),
    ({}, "hello", "line 2: got no JSON"),
    ({}, '{"text": 1}', "line 2: text: got 1, needs a string"),
    ({}, '{"text": "\\ud800"}', "line 2: text: got '\\ud800', needs characters that UTF-8 has"),
    ({}, '{"tokens": "1 2"}', "line 2: tokens: got '1 2', needs a list of tokens"),
    ({}, '{"tokens": []}', "line 2: got a prompt of 0 tokens, needs 1 to 52"),
    ({}, '{"tokens": [true]}', "line 2: tokens: got True, needs 0 to 257"),
    ({}, '{"tokens": [258]}', "line 2: tokens: got 258, needs 0 to 257"),
    ({}, json.dumps({"text": "a" * 52}), "line 2: got a prompt of 53 tokens, needs 1 to 52"),
]


@pytest.mark.parametrize(("changes", "line", "message"), BAD)
def test_what_cannot_be_recorded_is_one_line_and_leaves_no_file(changes, line, message, folder, monkeypatch, capfd):
    (folder / "prompts.jsonl").write_text(GOOD_LINE + line)
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    given = {"--drafter": "drafter", "--out": "t.kdtr", "--anchors": "12"} | changes
    places = [given.pop("model", "model"), given.pop("prompts", "prompts.jsonl")]
    assert cli.run(["record", *places, *[part for option in given.items() for part in option]]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("kdtree: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert sorted(folder.iterdir()) == before


def test_a_folder_that_takes_no_files_is_found_before_anything_is_read(folder, monkeypatch, capfd):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kdtree.cli.options.TemporaryFile", refuse)
    assert cli.run(["record", "no-model", "no.jsonl", "--drafter", "no", "--out", str(folder / "t.kdtr")]) == 2
    assert "t.kdtr, needs a folder that takes files: Permission denied" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n \n", "prompts.jsonl: got no prompts, needs one a line"),
        (b"\xff\n", "prompts.jsonl: got bytes that are not"),
    ],
)
def test_a_file_without_prompts_is_refused(content, message, folder, monkeypatch, capfd):
    (folder / "prompts.jsonl").write_bytes(content)
    monkeypatch.chdir(folder)
    assert cli.run(["record", "model", "prompts.jsonl", "--drafter", "drafter", "--out", "t.kdtr", *FEW]) == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 255}, "model/config.json: vocab_size: got 255, needs an integer, 256 or more"),
        ({"bos_token_id": 258}, "model/config.json: bos_token_id: got 258, needs 0 to 257"),
        ({"bos_token_id": "a"}, "bos_token_id: got 'a', needs an integer"),
    ],
)
def test_a_byte_level_config_that_contradicts_itself_is_refused(changes, message, folder, monkeypatch, capfd):
    (folder / "model" / "config.json").write_text(json.dumps(hf_config(CONFIG, **BYTES | changes)))
    monkeypatch.chdir(folder)
    assert cli.run(["record", "model", "prompts.jsonl", "--drafter", "drafter", "--out", "t.kdtr", *FEW]) == 2
    assert message in capfd.readouterr().err
