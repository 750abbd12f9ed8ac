"""Two tiny checkpoints with the answers of Hugging Face: every gate, in float32 and in true float64."""

import numpy as np
import pytest
from golden import DATA
from test_transformer import batch_of

from kdtree import DraftTree, kdtr, ops
from kdtree.loading import load_model
from kdtree.place import fetched
from kdtree.target import Target

GATE = {"f64": 1e-10, "f32": 2e-4}
EVERY_MODEL = pytest.mark.parametrize("name", ["full", "k26"])
EVERY_RUN = pytest.mark.parametrize(
    "run",
    [
        pytest.param({}, id="batched"),
        pytest.param({"exact": True}, id="exact"),
        pytest.param({"backend": "host"}, id="host"),
        pytest.param({"backend": "cuda"}, id="cuda", marks=pytest.mark.gpu),
    ],
)
EVERY_DTYPE = pytest.mark.parametrize("suffix", GATE)


def load(name, suffix, run):
    folder = DATA / "golden" / "hf" / name
    target = Target(load_model(folder, np.float64 if suffix == "f64" else np.float32), **run)
    return target, kdtr.load(folder / "golden.kdtr").tensors


def read_prompt(target, golden):
    cache = target.new_cache(1)
    return cache, target.read(cache, 0, golden["prompt"])


def golden_tree(golden):
    return DraftTree.from_parents(golden["parents"], token_N=golden["tree_tokens"])


def greedy(target, cache, token, count):
    """Return `count` greedy tokens after `token`, one a pass."""
    tokens = []
    for _ in range(count):
        result = target.verify(cache, batch_of([DraftTree.from_parents([-1], token_N=[token])]))
        cache.commit(np.array([[0]]), np.array([1]))
        token = int(ops.argmax(result.logit_BNV[0])[0])
        tokens.append(token)
    return tokens


@EVERY_MODEL
@EVERY_DTYPE
@EVERY_RUN
def test_the_golden_model_comes_out(name, suffix, run):
    target, golden = load(name, suffix, run)
    cache, hidden_YTD = read_prompt(target, golden)
    gate = {"rtol": 0, "atol": GATE[suffix]}
    np.testing.assert_allclose(hidden_YTD, golden[f"hidden_{suffix}"], **gate)
    logits = ops.linear(hidden_YTD[-1], target.weights.lm_head_VD)
    np.testing.assert_allclose(logits, golden[f"logits_{suffix}"], **gate)
    rank, rows = target.config.kv_lora_rank, fetched(cache.kv_YBSX[:, 0, : len(golden["prompt"])])
    np.testing.assert_allclose(rows[:, :, :rank], golden[f"cache_c_{suffix}"], **gate)
    np.testing.assert_allclose(rows[:, :, rank:], golden[f"cache_r_{suffix}"], **gate)


@EVERY_MODEL
@EVERY_DTYPE
@EVERY_RUN
def test_the_golden_tree_comes_out_and_goes_on_after_compaction(name, suffix, run):
    target, golden = load(name, suffix, run)
    cache, _ = read_prompt(target, golden)
    result = target.verify(cache, batch_of([golden_tree(golden)]))
    np.testing.assert_allclose(result.logit_BNV[0], golden[f"tree_{suffix}"], rtol=0, atol=GATE[suffix])
    path = [0, 1, 3, 6, 8]
    cache.commit(np.array([[*path, *[-1] * 5]]), np.array([len(path)]))
    first = int(ops.argmax(result.logit_BNV[0])[path[-1]])
    rest = greedy(target, cache, first, len(golden[f"compact_cont_{suffix}"]) - 1)
    assert [first, *rest] == golden[f"compact_cont_{suffix}"].tolist()


@EVERY_MODEL
@EVERY_DTYPE
@EVERY_RUN
def test_the_golden_greedy_tokens_come_out(name, suffix, run):
    target, golden = load(name, suffix, run)
    cache = target.new_cache(1)
    target.read(cache, 0, golden["prompt"][:-1])
    tokens = greedy(target, cache, int(golden["prompt"][-1]), len(golden[f"greedy_{suffix}"]))
    assert tokens == golden[f"greedy_{suffix}"].tolist()
