"""A block-diffusion drafter over rounds: its context is that of the committed tokens, however they came."""

from itertools import pairwise

import numpy as np
import pytest
from drafter_fixtures import context_of, draft_after, drafter_config, random_drafter, random_hidden, same_bits
from hypothesis import given
from hypothesis import strategies as st
from model_fixtures import TINY, random_weights

from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.reference.arrays import Index
from kdtree.reference.block_diffusion import empty_context, extend_context, mask_block, target_features
from kdtree.reference.errors import ShapeError
from kdtree.reference.transformer import forward
from kdtree.reference.visibility import visibility

V, P = TINY.vocab_size, 23
TARGET = random_weights()
DRAFTER, DRAFTER_64 = random_drafter(), random_drafter(dtype=np.float64)
CONFIG = DRAFTER.config
HIDDEN = random_hidden(P)
TOKENS = np.random.default_rng(1).integers(0, V, P + 1).astype(np.int32)


def drafts_over_rounds(drafter, hidden_YTD, ends):
    """Let one session propose at each end; a call brings the streams of the tokens since the last."""
    session = drafter.session()
    return [session.propose(TOKENS[: end + 1], hidden_YTD[:, start:end]) for start, end in pairwise((0, *ends))]


ends = st.lists(st.integers(0, P), min_size=1, max_size=6).map(lambda ends: [*sorted(ends), P])


@given(ends)
def test_an_exact_context_does_not_depend_on_how_rounds_were_split(ends):
    features = target_features(HIDDEN, CONFIG.target_layer_ids)
    context = empty_context(DRAFTER)
    for start, end in pairwise((0, *ends)):
        context = extend_context(DRAFTER, context, features[start:end], exact=True)
    whole = context_of(DRAFTER, HIDDEN, exact=True)
    assert context.length == P
    assert same_bits(context.key_YPGM, whole.key_YPGM)
    assert same_bits(context.value_YPGM, whole.value_YPGM)


@given(ends)
def test_exact_drafts_do_not_depend_on_how_rounds_were_split(ends):
    drafter = BlockDiffusion(DRAFTER, TARGET, exact=True)
    for end, found in zip(ends, drafts_over_rounds(drafter, HIDDEN, ends), strict=True):
        assert same_bits(found, drafts_over_rounds(drafter, HIDDEN, [end])[0])


@given(ends)
def test_a_batched_context_equals_the_exact_one_to_rounding(ends):
    batched, exact = (
        drafts_over_rounds(BlockDiffusion(DRAFTER, TARGET, exact), HIDDEN, ends) for exact in (False, True)
    )
    np.testing.assert_allclose(batched, exact, rtol=0, atol=2e-5)


def test_a_prompt_of_one_token_is_drafted_without_a_context():
    found = BlockDiffusion(DRAFTER, TARGET).session().propose(TOKENS[:1], random_hidden(0))
    bare = draft_after(DRAFTER, TARGET, empty_context(DRAFTER), mask_block(CONFIG, TOKENS[0]))
    assert same_bits(found, bare)


def test_sessions_do_not_share_a_context():
    drafter = BlockDiffusion(DRAFTER, TARGET, exact=True)
    one, other = drafter.session(), drafter.session()
    one.propose(TOKENS[:6], HIDDEN[:, :5])
    other.propose(TOKENS[:3], HIDDEN[:, 5:7])
    found = one.propose(TOKENS, HIDDEN[:, 5:])
    assert same_bits(found, drafts_over_rounds(drafter, HIDDEN, [P])[0])


def run_tree(kv, length, token_N, parent_N):
    """Run a tree of the exact target behind `length` cached tokens; return its streams (Y + 1, N, D)."""
    parent_BN: Index = np.array([parent_N], np.int32)
    count_B = np.array([len(parent_N)], np.int32)
    visible_BNN = visibility(parent_BN, count_B)
    position_BN = (length + visible_BNN.sum(axis=2) - 1).astype(np.int32)
    token_BN, length_B = np.array([token_N], np.int32), np.array([length], np.int32)
    return forward(TARGET, kv, length_B, token_BN, position_BN, visible_BNN, count_B, exact=True).hidden_YBND[:, 0]


def empty_cache():
    return np.zeros((TINY.num_hidden_layers, 1, 64, TINY.kv_lora_rank + TINY.qk_rope_head_dim), np.float32)


def test_the_context_after_tree_rounds_is_that_of_plain_decoding():
    """Each round accepts a path through a tree with wrong siblings; the streams of the path are plain ones' bits."""
    plain_kv, tree_kv = empty_cache(), empty_cache()
    plain = np.concatenate([run_tree(plain_kv, p, [TOKENS[p]], [-1]) for p in range(P)], axis=1)
    drafter = BlockDiffusion(DRAFTER, TARGET, exact=True)
    session, length = drafter.session(), 0
    while length + 3 <= P:
        right, wrong = TOKENS[length : length + 3], (TOKENS[length : length + 3] + 1) % V
        path = [0, 2, 3] if length % 2 else [0, 2]
        tree = [right[0], wrong[1], right[1], right[2], wrong[2]]
        hidden = run_tree(tree_kv, length, tree, [-1, 0, 0, 2, 2])
        tree_kv[:, 0, length : length + len(path)] = tree_kv[:, 0, length + np.array(path)]
        length += len(path)
        found = session.propose(TOKENS[: length + 1], hidden[:, path])
        assert same_bits(found, drafts_over_rounds(drafter, plain, [length])[0])
    assert length > P - 3


# What is refused.


def test_a_refused_call_leaves_the_session_as_it_was():
    session = BlockDiffusion(DRAFTER, TARGET, exact=True).session()
    session.propose(TOKENS[:4], HIDDEN[:, :3])
    beyond = np.array([*TOKENS[:8], V], np.int32)
    with pytest.raises(ValueError, match=f"token_T: got {V} at row 0, needs 0 to {V - 1}"):
        session.propose(beyond, HIDDEN[:, 3:8])
    found = session.propose(TOKENS[:9], HIDDEN[:, 3:8])
    assert same_bits(found, drafts_over_rounds(BlockDiffusion(DRAFTER, TARGET, exact=True), HIDDEN, [8])[0])


@pytest.mark.parametrize(
    ("token", "hidden", "message"),
    [
        (TOKENS[:0], HIDDEN[:, :0], "token_T: got no tokens"),
        (TOKENS[:6].astype(float), HIDDEN[:, 3:5], "token_T: got dtype float64, needs integers"),
        (TOKENS[None, :6], HIDDEN[:, 3:5], r"token_T: got shape \(1, 6\), needs \(T\)"),
        (TOKENS[:3], HIDDEN[:, :0], "token_T: got 3 tokens, needs more than the 3 of earlier calls"),
        (TOKENS[:6], HIDDEN[:, 3:6], r"new_hidden_YTD: got .*, needs \(4, 2, 64\): 2 tokens from position 3"),
        (TOKENS[:6], HIDDEN[:3, 3:5], r"new_hidden_YTD: got shape \(3, 2, 64\), needs \(4, 2, 64\)"),
        (TOKENS[:6], HIDDEN[:, 3:5, :9], r"new_hidden_YTD: got shape \(4, 2, 9\), needs \(4, 2, 64\)"),
        (TOKENS[:6], HIDDEN[:, 3:5].astype(float), "new_hidden_YTD: got dtype float64, needs the drafter's, float32"),
    ],
)  # fmt: skip
def test_streams_that_do_not_fit_the_tokens_are_refused_by_name(token, hidden, message):
    session = BlockDiffusion(DRAFTER, TARGET).session()
    session.propose(TOKENS[:4], HIDDEN[:, :3])
    with pytest.raises(ShapeError, match=message):
        session.propose(token, hidden)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 32}, "hidden_size: got 32, needs the target's, 64"),
        ({"mask_token_id": V}, f"mask_token_id: got {V}, needs 0 to {V - 1}"),
        ({"target_layer_ids": (0, 2)}, r"target_layer_ids: got \(0, 2\), needs layers before the last, 2"),
    ],
)
def test_a_drafter_that_does_not_fit_its_target_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        BlockDiffusion(random_drafter(drafter_config(**changes)), TARGET)
    with pytest.raises(ShapeError, match="weights: got dtype float64, needs the target's, float32"):
        BlockDiffusion(DRAFTER_64, TARGET)
