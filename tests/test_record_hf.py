"""Recording models of transformers: the same trace as a plain loop over prefixes, and as the numpy models."""

import json

import numpy as np
import pytest
from drafter_fixtures import config_json, drafter_config, random_drafter, write_drafter
from model_fixtures import TINY, hf_config, hf_tensors, random_weights, save_checkpoint

from kdtree import ModelError, Seeded, Target, greedy, record
from kdtree.drafter_loading import load_drafter
from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.loading import load_model
from kdtree.record_models import ModelPair

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kdtree import record_hf as module  # noqa: E402
from kdtree.record_hf import load_torch_drafter, record_hf  # noqa: E402

V, D, T = TINY.vocab_size, TINY.hidden_size, 14
PROMPTS = [[5, 17, 33, 2, 60, 9], [8]]
DRAFTER = drafter_config(block_size=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_drafter(tmp_path_factory.mktemp("drafter"), random_drafter(DRAFTER))


@pytest.fixture(scope="module")
def qwen():
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=V, hidden_size=D, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=128, initializer_range=0.3,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).eval()


def as_functions(model, drafter):
    """Return the drafter and the model as functions of a prefix that keep nothing between calls."""

    def run(prefix):
        with torch.no_grad():
            return model(torch.tensor(prefix[None]).long(), output_hidden_states=True)

    def draft(prefix):
        features = torch.cat([run(prefix).hidden_states[layer + 1] for layer in drafter.config.target_layer_ids], -1)
        block = torch.tensor([[[prefix[-1], *[drafter.config.mask_token_id] * drafter.config.draft_len]]])
        with torch.no_grad():
            hidden = drafter(features[:, :-1], model.get_input_embeddings()(block), torch.tensor([[len(prefix) - 1]]))
            return model.lm_head(hidden[0, 0, 1:]).numpy()

    return draft, lambda prefix: run(prefix).logits[0, -1].numpy()


def assert_agree(found, expected, atol):
    """Compare traces; tokens of a row may change places where their log-probs are as good as equal."""
    np.testing.assert_array_equal(found.continuation, expected.continuation)
    np.testing.assert_array_equal(found.anchor_count, expected.anchor_count)
    np.testing.assert_allclose(found.topk_log_probs, expected.topk_log_probs, rtol=0, atol=atol)
    settled = np.abs(np.diff(expected.topk_log_probs, axis=-1, append=-np.inf, prepend=np.inf)) > 3 * atol
    settled = settled[..., :-1] & settled[..., 1:]
    assert settled.mean() > 0.9
    np.testing.assert_array_equal(found.topk_ids[settled], expected.topk_ids[settled])


@pytest.mark.parametrize("sampler", [greedy, Seeded(1.0, seed=2)])
@pytest.mark.parametrize("logits", [1, 1 << 25])
def test_a_qwen3_trace_is_that_of_a_plain_loop(qwen, folder, sampler, logits, monkeypatch):
    """One anchor at once, or all of them."""
    monkeypatch.setattr(module, "LOGITS", logits)
    found = record_hf(qwen, folder, PROMPTS, anchors=T, K=20, sampler=sampler, metadata={"target": "tiny"})
    expected = record(*as_functions(qwen, load_torch_drafter(folder, qwen)), PROMPTS, anchors=T, K=20, sampler=sampler)
    assert_agree(found, expected, atol=2e-5)
    assert found.metadata == {"target": "tiny", "vocab_size": str(V)}
    assert found.prompt_len.tolist() == [6, 1]


@pytest.mark.parametrize("sampler", [greedy, Seeded(0.7, seed=2)])
def test_a_deepseek_trace_is_that_of_the_numpy_models(folder, sampler, tmp_path):
    save_checkpoint(tmp_path / "model", hf_config(TINY), hf_tensors(random_weights()))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    weights = load_model(tmp_path / "model")
    pair = ModelPair(Target(weights, "numba"), BlockDiffusion(load_drafter(folder), weights, exact=True))
    expected = record(pair.drafter, pair.target, PROMPTS, anchors=T, sampler=sampler)
    assert_agree(record_hf(model, folder, PROMPTS, anchors=T, sampler=sampler), expected, atol=1e-4)


def test_a_stop_token_ends_a_sequence_of_a_transformers_model(qwen, folder):
    free = record_hf(qwen, folder, PROMPTS, anchors=T, sampler=Seeded(1.0, seed=2))
    stop = int(free.continuation[0, 5])
    steps = []
    found = record_hf(
        qwen, folder, PROMPTS, anchors=T, sampler=Seeded(1.0, seed=2), stop_tokens=[stop],
        progress=lambda *step: steps.append(step),
    )  # fmt: skip
    written = free.continuation[0].tolist()
    assert found.anchor_count[0] == written.index(stop) + 1
    assert found.continuation[0, : found.anchor_count[0]].tolist() == written[: written.index(stop) + 1]
    assert steps == [(1, 2), (2, 2)]


def test_half_precision_is_recorded_in_float32(qwen, folder):
    half = transformers.Qwen3ForCausalLM(qwen.config).eval().to(torch.bfloat16)
    trace = record_hf(half, folder, PROMPTS[:1], anchors=3, K=4)
    assert trace.topk_log_probs.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 32}, "hidden_size: got 32, needs the target's, 64"),
        ({"mask_token_id": V}, f"mask_token_id: got {V}, needs 0 to {V - 1}"),
        ({"target_layer_ids": (0, 2)}, r"target_layer_ids: got \(0, 2\), needs layers before the last, 2"),
    ],
)
def test_a_drafter_that_does_not_fit_a_transformers_model_is_refused(qwen, changes, message, tmp_path):
    folder = write_drafter(tmp_path, random_drafter(drafter_config(**changes)))
    with pytest.raises(ValueError, match=message):
        record_hf(qwen, folder, PROMPTS, anchors=T)


def test_a_drafter_with_a_fault_is_not_loaded(qwen, tmp_path):
    given = config_json(DRAFTER) | {"intermediate_size": 45}
    folder = write_drafter(tmp_path, random_drafter(DRAFTER), given=given)
    with pytest.raises(ModelError, match=r"gate_proj.weight' is F32 \(44, 64\), needs .* \(45, 64\)"):
        load_torch_drafter(folder, qwen)
    (folder / "config.json").write_text(
        json.dumps(config_json(DRAFTER) | {"num_hidden_layers": 1, "layer_types": None})
    )
    with pytest.raises(ModelError, match="layers.1.input_layernorm.weight' is not one that this drafter uses"):
        load_torch_drafter(folder, qwen)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": [[V]]}, "prompts, sequence 0: got token 61, needs 0 to 60"),
        ({"anchors": 0}, "anchors, K: got 0 and 64"),
        (
            {"anchors": 126},
            "prompts, sequence 0: got 6 tokens, needs at most 2: the model's 128 positions less 126 anc",
        ),
        ({"sampler": lambda *_: np.array([V])}, "sampler, sequence 0, anchor 0: got"),
    ],
)
def test_a_bad_argument_for_a_transformers_model_is_refused(qwen, folder, changes, message):
    with pytest.raises(ValueError, match=message):
        record_hf(qwen, folder, **{"prompts": PROMPTS, "anchors": T} | changes)


@pytest.mark.parametrize(("broken", "message"), [
    ("model", "^model, sequence 0, anchor 0: got NaN among the logits"),
    ("drafter", "^drafter, sequence 0, anchor 0: got NaN among the log-probs"),
])  # fmt: skip
def test_nan_of_a_transformers_model_is_named(qwen, folder, broken, message):
    drafter = load_torch_drafter(folder, qwen)
    norm = qwen.model.norm if broken == "model" else drafter.norm
    hook = norm.register_forward_hook(lambda _module, _given, result: result * torch.nan)
    try:
        with pytest.raises(ValueError, match=message):
            record_hf(qwen, drafter, PROMPTS, anchors=T)
    finally:
        hook.remove()
