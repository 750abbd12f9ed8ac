"""Checkpoints as Hugging Face stores them: every variant is loaded, every fault is refused by name."""

import json
import re

import ml_dtypes
import numpy as np
import pytest
from golden import DATA
from model_fixtures import SOFTMAX, hf_config, hf_tensors, random_weights, save_checkpoint, tiny_config

from kdtree import kdtr
from kdtree.loading import ModelError, load_model
from kdtree.reference.int4_dequant import int4_dequant

VARIANTS = {
    "as it is": {},
    "half-split rope": {"rope_interleave": False},
    "no q-LoRA": {"q_lora_rank": None},
    "no renormalisation": {"norm_topk_prob": False},
    "softmax routing": SOFTMAX,
    "one group": {"n_group": 1, "topk_group": 1},
    "no shared expert": {"n_shared_experts": 0},
    "two shared experts": {"n_shared_experts": 2},
    "all dense": {"first_k_dense_replace": 3},
    "no dense layer": {"first_k_dense_replace": 0},
    "no YaRN": {"yarn": None},
}
FORMS = {
    "transformers 5": {},
    "older": {"old": True},
    "Kimi-K2.5": {"old": True, "wrapped": True},
}


def assert_equal(found, expected):
    """Compare two checkpoints tensor by tensor."""
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def write(folder, weights, *, int4=False, dtype=None, shards=1, **form):
    """Write a checkpoint and return its tensors."""
    tensors = hf_tensors(weights, int4=int4, dtype=dtype)
    tied = weights.lm_head_VD is weights.embed_VD
    save_checkpoint(
        folder,
        hf_config(weights.config, int4=int4, tied=tied, **form),
        tensors,
        shards=shards,
        prefix="language_model." if form.get("wrapped") else "",
    )
    return tensors


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_of_a_model_is_loaded_as_it_was_written(tmp_path, changes, form):
    weights = random_weights(tiny_config(**changes), seed=1)
    tensors = write(tmp_path, weights, **form)
    loaded = load_model(tmp_path)
    assert loaded.config == weights.config
    assert_equal(hf_tensors(loaded), tensors)
    assert len(loaded.layers) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_checkpoint_is_cast_exactly(tmp_path, stored, dtype):
    tensors = write(tmp_path, random_weights(), dtype=stored)
    found = hf_tensors(load_model(tmp_path, dtype))
    assert {array.dtype for array in found.values()} == {np.dtype(dtype)}
    assert_equal(found, {name: array.astype(np.float64) for name, array in tensors.items()})


def test_kv_b_proj_is_split_per_head_keys_first(tmp_path):
    config = tiny_config(num_attention_heads=3)
    U, M, C = config.qk_nope_head_dim, config.v_head_dim, config.kv_lora_rank
    tensors = hf_tensors(random_weights(config))
    rows = np.arange(3 * (U + M), dtype=np.float32)
    tensors["model.layers.0.self_attn.kv_b_proj.weight"] = np.repeat(rows[:, None], C, axis=1)
    attention = load_model(save_checkpoint(tmp_path, hf_config(config), tensors)).layers[0].attention
    for h in range(3):
        start = h * (U + M)
        assert attention.k_b_HUC[h, :, 0].tolist() == list(range(start, start + U))
        assert attention.v_b_HMC[h, :, 0].tolist() == list(range(start + U, start + U + M))


@pytest.mark.parametrize("shards", [2, 5])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_shards_hold_what_one_file_holds(tmp_path, shards, form):
    tensors = write(tmp_path, random_weights(), shards=shards, **form)
    assert len(list(tmp_path.glob("*.safetensors"))) == shards
    assert_equal(hf_tensors(load_model(tmp_path)), tensors)


def test_tied_embeddings_are_one_array_whether_the_head_is_stored_or_not(tmp_path):
    weights = random_weights(tied=True)
    tensors = write(tmp_path, weights)
    assert "lm_head.weight" not in tensors
    loaded = load_model(tmp_path)
    assert loaded.lm_head_VD is loaded.embed_VD
    stored = tensors | {"lm_head.weight": weights.embed_VD}
    loaded = load_model(save_checkpoint(tmp_path, hf_config(weights.config, tied=True), stored))
    assert loaded.lm_head_VD is loaded.embed_VD


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("rounded", [True, False])
def test_routed_experts_may_be_int4(tmp_path, rounded, form):
    weights = random_weights(tiny_config(hidden_size=96))
    stored = write(tmp_path, weights, int4=True, dtype=ml_dtypes.bfloat16, **form)
    expected = {name: array for name, array in stored.items() if ".experts." not in name}
    for name in stored:
        if name.endswith("weight_packed"):
            module = name.removesuffix("_packed")
            scale_OG = stored[f"{module}_scale"].astype(np.float32)
            expected[module] = int4_dequant(stored[name], scale_OG, stored[f"{module}_shape"][1], rounded)
    for dtype in (np.float32, np.float64):
        loaded = load_model(tmp_path, dtype, int4_rounded=rounded)
        assert loaded.layers[1].mlp.down_EDF.dtype == dtype
        assert_equal(hf_tensors(loaded), expected)
    moved = np.abs(loaded.layers[1].mlp.up_EFD - weights.layers[1].mlp.up_EFD)
    assert 0 < moved.max() < 0.05


def test_the_quantisation_may_stand_beside_the_text_config(tmp_path):
    write(tmp_path, random_weights(), int4=True, wrapped=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = config["text_config"].pop("quantization_config")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(tmp_path).layers[2].mlp.gate_EFD.shape == (8, 32, 64)


def test_what_the_model_does_not_use_is_ignored(tmp_path):
    weights = random_weights()
    tensors = {f"language_model.{name}": array for name, array in hf_tensors(weights).items()}
    extra = {
        "language_model.model.layers.3.eh_proj.weight": np.zeros((2, 2), np.float32),  # multi-token prediction
        "language_model.model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(2, np.float32),
        "vision_tower.patch_embed.proj.bias": np.full(3, np.nan, np.float32),
        "mm_projector.proj.0.weight": np.zeros((1, 1), np.int8),
    }
    save_checkpoint(tmp_path, hf_config(weights.config, wrapped=True), tensors | extra)
    assert_equal(hf_tensors(load_model(tmp_path)), hf_tensors(weights))


@pytest.mark.parametrize("name", ["full", "k26"])
def test_the_golden_checkpoints_load_with_the_shapes_of_their_answers(name):
    folder = DATA / "golden" / "hf" / name
    golden = kdtr.load(folder / "golden.kdtr").tensors
    for dtype in (np.float32, np.float64):
        weights = load_model(folder, dtype)
        assert weights.lm_head_VD.dtype == dtype
        assert len(weights.lm_head_VD) == golden["logits_f64"].shape[1]
        assert (len(weights.layers), weights.config.kv_lora_rank) == golden["cache_c_f64"].shape[::2]
        assert weights.config.qk_rope_head_dim == golden["cache_r_f64"].shape[2]
        assert len(weights.embed_VD[0]) == golden["hidden_f64"].shape[2]


FIRST = "model.layers.0.self_attn.o_proj.weight"
ROUTER = "model.layers.1.mlp.gate.weight"
EXPERT = "model.layers.2.mlp.experts.7.down_proj.weight"
FAULTS = {
    "missing": (lambda t: t.pop(EXPERT), f"'{EXPERT}' is missing"),
    "missing bias": (
        lambda t: t.pop("model.layers.1.mlp.gate.e_score_correction_bias"),
        "e_score_correction_bias' is missing",
    ),
    "missing embedding": (
        lambda t: t.pop("model.embed_tokens.weight"),
        "'model.embed_tokens.weight' is missing, also under 'language_model.'",
    ),
    "missing head": (lambda t: t.pop("lm_head.weight"), "'lm_head.weight' is missing"),
    "shape": (
        lambda t: t.update({FIRST: t[FIRST].T.copy()}),
        f"'{FIRST}' is F32 (12, 64), needs F32 or BF16 or F16 (64, 12)",
    ),
    "dimensions": (lambda t: t.update({ROUTER: t[ROUTER][0]}), f"'{ROUTER}' is F32 (64,), needs"),
    "dtype": (lambda t: t.update({ROUTER: t[ROUTER].astype(np.int8)}), f"'{ROUTER}' is I8 (8, 64), needs F32 or"),
    "double": (lambda t: t.update({FIRST: t[FIRST].astype(float)}), f"'{FIRST}' is F64"),
    "not a number": (lambda t: t[EXPERT].__setitem__((0, 0), np.nan), f"'{EXPERT}' has a value that is not finite"),
    "infinite": (lambda t: t[FIRST].__setitem__((1, 1), -np.inf), f"'{FIRST}' has a value that is not finite"),
    "bias": (
        lambda t: t.update({FIRST.replace("weight", "bias"): np.zeros(64, np.float32)}),
        "o_proj.bias' is not one that this model uses",
    ),
    "layer beyond": (
        lambda t: t.update({"model.layers.4.input_layernorm.weight": np.zeros(64, np.float32)}),
        "'model.layers.4.input_layernorm.weight' is not one that this model uses",
    ),
    "expert beyond": (
        lambda t: t.update({EXPERT.replace("7", "8"): t[EXPERT]}),
        "experts.8.down_proj.weight' is not one that this model uses",
    ),
}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("edit", "message"), FAULTS.values(), ids=FAULTS)
def test_a_checkpoint_with_one_fault_is_refused_by_name(tmp_path, edit, message, shards):
    weights = random_weights()
    tensors = {name: array.copy() for name, array in hf_tensors(weights).items()}
    edit(tensors)
    save_checkpoint(tmp_path, hf_config(weights.config), tensors, shards=shards)
    with pytest.raises(ModelError, match=re.escape(message)) as caught:
        load_model(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


def test_a_head_that_differs_from_the_embedding_cannot_be_tied(tmp_path):
    weights = random_weights()
    save_checkpoint(tmp_path, hf_config(weights.config, tied=True), hf_tensors(weights))
    with pytest.raises(ModelError, match=r"lm_head.weight' differs from the embedding"):
        load_model(tmp_path)


PACKED = "model.layers.1.mlp.experts.0.up_proj.weight"
INT4_FAULTS = {
    "shape says otherwise": (
        lambda t: t.update({f"{PACKED}_shape": np.array([64, 32])}),
        f"'{PACKED}_shape' is (64, 32), needs (32, 64)",
    ),
    "words": (
        lambda t: t.update({f"{PACKED}_packed": np.zeros((32, 9), np.int32)}),
        f"'{PACKED}_packed' is I32 (32, 9), needs I32 (32, 8)",
    ),
    "scale": (lambda t: t[f"{PACKED}_scale"].__setitem__((3, 1), np.nan), f"'{PACKED}_scale' is refused: scale_OG"),
    "scale in float32": (
        lambda t: t.update({f"{PACKED}_scale": t[f"{PACKED}_scale"].astype(np.float32)}),
        f"'{PACKED}_scale' is F32 (32, 2), needs BF16 (32, 2)",
    ),
    "not packed": (
        lambda t: [t.pop(f"{PACKED}_{part}") for part in ("shape", "packed", "scale")],
        f"'{PACKED}_shape' is missing",
    ),
    "zero point": (
        lambda t: t.update({f"{PACKED}_zero_point": np.zeros((4, 2), np.int32)}),
        f"'{PACKED}_zero_point' is not one that this model uses",
    ),
}


@pytest.mark.parametrize(("edit", "message"), INT4_FAULTS.values(), ids=INT4_FAULTS)
def test_a_packed_expert_with_one_fault_is_refused_by_name(tmp_path, edit, message):
    weights = random_weights()
    tensors = hf_tensors(weights, int4=True)
    edit(tensors)
    save_checkpoint(tmp_path, hf_config(weights.config, int4=True), tensors)
    with pytest.raises(ModelError, match=re.escape(message)):
        load_model(tmp_path)


def test_packed_experts_need_a_config_that_says_so(tmp_path):
    weights = random_weights()
    save_checkpoint(tmp_path, hf_config(weights.config), hf_tensors(weights, int4=True))
    with pytest.raises(ModelError, match=r"experts.0.gate_proj.weight' is missing"):
        load_model(tmp_path)


@pytest.mark.parametrize("dtype", [np.float16, np.int32, "complex64", ml_dtypes.bfloat16])
def test_a_dtype_other_than_float32_and_float64_is_refused(tmp_path, dtype):
    with pytest.raises(ModelError, match=r"dtype: got \w+, needs float32 or float64"):
        load_model(tmp_path, dtype)


@pytest.mark.parametrize("dtype", [float, "float64", np.dtype(np.float64)])
def test_a_dtype_may_be_spelled_as_numpy_allows(tmp_path, dtype):
    write(tmp_path, random_weights())
    assert load_model(str(tmp_path), dtype).norm.dtype == np.float64
