"""The whole model: against a naive second truth, and exact mode against plain decoding."""

import naive_model
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_fixtures import random_weights, tiny_config

from kdtree import DraftTree, ShapeError, TreeBatch, TreeError
from kdtree.reference.config import Yarn
from kdtree.reference.transformer import forward
from kdtree.target import Target
from kdtree.testing.strategies import parent_lists

VARIANTS = {
    "as DeepSeek": {},
    "pairs are halves": {"rope_interleave": False},
    "no q-LoRA": {"q_lora_rank": None},
    "weights not normalised": {"norm_topk_prob": False},
    "softmax routing": {"scoring_func": "softmax"},
    "softmax routing, not normalised": {"scoring_func": "softmax", "norm_topk_prob": False},
    "one group": {"n_group": 1, "topk_group": 1},
    "no shared expert": {"n_shared_experts": 0},
    "two shared experts": {"n_shared_experts": 2},
    "no YaRN": {"yarn": None},
    "YaRN without truncation": {"yarn": Yarn(4, 128, mscale=1, mscale_all_dim=0.8, truncate=False)},
    "YaRN without mscale": {"yarn": Yarn(4, 128)},
    "dense throughout": {"first_k_dense_replace": 3},
    "mixtures throughout": {"first_k_dense_replace": 0},
}
RNG = np.random.default_rng(0)
TEXT = RNG.integers(0, 61, 40).astype(np.int32)


def batch_of(trees):
    """Pad trees to one batch."""
    N = max(tree.node_count for tree in trees)
    fields = []
    for name, pad in (("token_N", 0), ("depth_N", 0), ("parent_N", -1), ("rank_N", -1), ("logw_N", -np.inf)):
        rows = [np.pad(getattr(tree, name), (0, N - tree.node_count), constant_values=pad) for tree in trees]
        fields.append(np.array(rows))
    return TreeBatch(*fields, np.array([tree.node_count for tree in trees], np.int32))


def random_tree(parents, seed):
    tokens = np.random.default_rng(seed).integers(0, 61, len(parents))
    return DraftTree.from_parents(parents, token_N=tokens)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_the_model_equals_the_naive_one_in_every_variant(changes, exact):
    weights = random_weights(tiny_config(**changes), seed=3, dtype=np.float64)
    target = Target(weights, exact=exact)
    cache = target.new_cache(1)
    hidden_YTD = target.read(cache, 0, TEXT[:12])
    expected = naive_model.run(weights, TEXT[:12])
    np.testing.assert_allclose(hidden_YTD[-1] @ weights.lm_head_VD.T, expected, rtol=0, atol=1e-10)


def plain_decoding(target, prefix, tokens):
    """Return logits and cache rows of `tokens` behind a prefix, one token a pass."""
    cache = target.new_cache(1)
    target.read(cache, 0, prefix)
    logits = []
    for token in tokens:
        root = DraftTree.from_parents([-1], token_N=[token])
        logits.append(target.verify(cache, batch_of([root])).logit_BNV[0, 0])
        cache.commit(np.array([[0]]), np.array([1]))
    return np.array(logits), cache.kv_YBSX[:, 0, : len(prefix) + len(tokens)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=15)
@given(st.lists(st.tuples(parent_lists(max_nodes=12), st.integers(0, 7)), min_size=1, max_size=3), st.integers(0, 99))
def test_exact_slots_equal_plain_decoding_bit_for_bit(dtype, cases, seed):
    """Any tree, any prefix, any batch: every slot's logits, and the cache after any path is kept."""
    target = Target(random_weights(dtype=dtype), exact=True)
    trees = [random_tree(parents, seed + b) for b, (parents, _) in enumerate(cases)]
    cache = target.new_cache(len(trees))
    for b, (_, prefix_len) in enumerate(cases):
        target.read(cache, b, TEXT[b : b + prefix_len])
    result = target.verify(cache, batch_of(trees))
    N = result.logit_BNV.shape[1]
    path_BN, length_B = np.full((len(trees), N), -1), np.zeros(len(trees), int)
    expected_rows = []
    for b, (tree, (_, prefix_len)) in enumerate(zip(trees, cases, strict=True)):
        for slot in range(tree.node_count):
            path = tree.path(slot)
            logits, rows = plain_decoding(target, TEXT[b : b + prefix_len], tree.token_N[path])
            np.testing.assert_array_equal(result.logit_BNV[b, slot], logits[-1])
        path_BN[b, : len(path)], length_B[b] = path, len(path)
        expected_rows.append(rows)
    cache.commit(path_BN, length_B)
    for b, rows in enumerate(expected_rows):
        np.testing.assert_array_equal(cache.kv_YBSX[:, b, : cache.length_B[b]], rows)


@settings(max_examples=15)
@given(parent_lists(max_nodes=33), st.integers(0, 9), st.integers(0, 99))
def test_a_compacted_cache_is_that_of_a_plain_run(parents, prefix_len, seed):
    """Batched mode, to rounding: every path of the tree kept once."""
    target = Target(random_weights(dtype=np.float64))
    tree = random_tree(parents, seed)
    slot = tree.node_count - 1
    cache = target.new_cache(1)
    target.read(cache, 0, TEXT[:prefix_len])
    target.verify(cache, batch_of([tree]))
    path = tree.path(slot)
    cache.commit(np.pad(path, (0, tree.node_count - len(path)), constant_values=-1)[None], np.array([len(path)]))
    _, rows = plain_decoding(target, TEXT[:prefix_len], tree.token_N[path])
    np.testing.assert_allclose(cache.kv_YBSX[:, 0, : cache.length_B[0]], rows, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("dtype", "budget"), [(np.float32, 2e-4), (np.float64, 1e-11)])
@settings(max_examples=20)
@given(parent_lists(max_nodes=33), st.integers(0, 20), st.integers(0, 99))
def test_batched_and_exact_agree_to_rounding(dtype, budget, parents, prefix_len, seed):
    weights = random_weights(dtype=dtype)
    logits = []
    for exact in (False, True):
        target = Target(weights, exact=exact)
        cache = target.new_cache(1)
        target.read(cache, 0, TEXT[:prefix_len])
        logits.append(target.verify(cache, batch_of([random_tree(parents, seed)])).logit_BNV)
    np.testing.assert_allclose(*logits, rtol=0, atol=budget)


def test_garbage_in_padding_and_in_other_rows_changes_nothing():
    target = Target(random_weights(dtype=np.float64), exact=True)
    small, large = random_tree([-1, 0], 1), random_tree([-1, 0, 1, 2, 3], 2)
    cache = target.new_cache(2)
    cache.kv_YBSX[:] = np.nan
    together = target.verify(cache, batch_of([small, large])).logit_BNV
    alone = target.new_cache(1)
    np.testing.assert_array_equal(target.verify(alone, batch_of([small])).logit_BNV[0], together[0, :2])
    assert not np.isnan(together).any()


def test_positions_at_the_limit_are_refused_and_the_cache_is_unchanged():
    target = Target(random_weights(tiny_config(max_position_embeddings=6)))
    cache = target.new_cache(1)
    target.read(cache, 0, TEXT[:4])
    target.verify(cache, batch_of([random_tree([-1, 0], 0)]))
    before = cache.kv_YBSX.copy()
    with pytest.raises(ValueError, match="position: got 6 at batch row 0, slot 2; needs less than 6"):
        target.verify(cache, batch_of([random_tree([-1, 0, 1], 0)]))
    with pytest.raises(ValueError, match="token_T: got 3 tokens behind 4, needs at most 6 in all"):
        target.read(cache, 0, TEXT[:3])
    assert cache.length_B.tolist() == [4]
    np.testing.assert_array_equal(cache.kv_YBSX, before)


def test_a_cache_grows_and_keeps_its_rows():
    target = Target(random_weights(dtype=np.float64), exact=True)
    cache = target.new_cache(2)
    target.read(cache, 0, TEXT[:30])
    target.read(cache, 1, TEXT[:20])
    rows = cache.kv_YBSX[:, 0, :30].copy()
    target.read(cache, 0, np.tile(TEXT, 3))
    assert cache.kv_YBSX.shape[2] >= 150
    np.testing.assert_array_equal(cache.kv_YBSX[:, 0, :30], rows)
    cache.keep([1])
    assert cache.length_B.tolist() == [20]
    assert cache.kv_YBSX.flags.c_contiguous  # or every pass would copy it


def test_a_row_of_the_cache_has_576_numbers_at_the_size_of_k26():
    config = tiny_config(kv_lora_rank=512, qk_rope_head_dim=64)
    assert Target(random_weights(config)).new_cache(1).kv_YBSX.shape[3] == 576


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("prefix_len_B", [-1], "kv_YBSX: got 4 rows at batch row 0, needs prefix_len [+] node_count = -1 [+] 2"),
        ("prefix_len_B", [3], "needs prefix_len [+] node_count = 3 [+] 2"),
        ("position_BN", [[0]], "position_BN: got shape"),
        ("visible_BNN", np.ones((1, 3, 3), bool), "visible_BNN: got shape"),
        ("node_count_B", [3], "node_count_B: got 3"),
    ],
)
def test_a_pass_is_refused_before_anything_is_written(exact, name, value, message):
    weights = random_weights()
    width = weights.config.kv_lora_rank + weights.config.qk_rope_head_dim
    kv_YBSX = np.full((3, 1, 4, width), 7, np.float32)
    good = {
        "prefix_len_B": np.array([2], np.int32),
        "token_BN": np.array([[1, 2]], np.int32),
        "position_BN": np.array([[2, 3]], np.int32),
        "visible_BNN": np.tri(2, dtype=bool)[None],
        "node_count_B": np.array([2], np.int32),
    }
    with pytest.raises((ShapeError, TreeError), match=message):
        forward(weights, kv_YBSX, **{**good, name: np.array(value)}, exact=exact)
    assert (kv_YBSX == 7).all()
    forward(weights, kv_YBSX, **good, exact=exact)
