"""Speculative decoding equals plain decoding, whatever the drafter, the budget, the builder and the batch."""

from math import ceil
from types import SimpleNamespace

import numpy as np
import pytest
from adversaries import ADVERSARIES, Adversary, AlwaysWrong, adversary
from decode_fixtures import SEEDED, TEXT, V, accept_lens, oracle, plain_text, streams, target
from hypothesis import given
from hypothesis import strategies as st

from kdtree import builders, ops
from kdtree.decode import STAGES, autoregressive, speculative
from kdtree.drafters.prompt_lookup import PromptLookup
from kdtree.sampling import greedy

prompts_of_any_length = st.lists(st.lists(st.integers(0, V - 1), min_size=1, max_size=6), min_size=1, max_size=3)


@st.composite
def runs(draw, builder_names=("accum_logp:width=2", "chain", "ddtree")):
    """Draw all that a run takes, and its plain decoding."""
    backend = draw(st.sampled_from(["numpy", "numba"]))  # numba is exact in batches
    dtype, context = draw(st.sampled_from([np.float32, np.float64])), draw(st.sampled_from([8, 12, 512]))
    model = target(dtype, exact=backend == "numpy", context=context, backend=backend)
    prompts = draw(prompts_of_any_length)
    ends = {
        "max_new_tokens": draw(st.integers(0, 12)),
        "stop_tokens": draw(st.lists(st.integers(0, V - 1), max_size=2)),
        "sampler": draw(st.sampled_from([greedy, SEEDED])),
    }
    plain = autoregressive(model, prompts, **ends)
    kind = draw(st.sampled_from(["oracle", "lookup", "wrong", *ADVERSARIES]))
    L = draw(st.integers(0, 5))
    if kind == "oracle":
        drafter = oracle(prompts, plain, L, error_rate=draw(st.sampled_from([0.0, 0.3, 1.0])))
    elif kind == "wrong":
        drafter = AlwaysWrong(prompts, [sequence.tokens for sequence in plain.sequences], L, V)
    elif kind == "lookup":
        drafter = PromptLookup(draft_len=L, vocab_size=V)
    else:
        drafter = adversary(kind, L, V, dtype=draw(st.sampled_from([np.float32, np.float64])))
    tree = {"budget": draw(st.integers(0, 12)), "builder": draw(st.sampled_from(builder_names))}
    return SimpleNamespace(model=model, prompts=prompts, ends=ends, plain=plain, drafter=drafter, tree=tree)


def speculate(run):
    return speculative(run.model, run.drafter, run.prompts, **run.tree, **run.ends)


@given(runs())
def test_speculative_tokens_are_those_of_plain_decoding_bit_for_bit(run):
    assert streams(speculate(run)) == streams(run.plain)


def walk_along(run, prompt, tokens):
    """Lay the plain tokens over the set of a tree's paths, round by round."""
    session, lens, budget = run.drafter.session(), [], run.tree["budget"]
    while sum(lens) < len(tokens):
        known = [*prompt, *tokens[: sum(lens)]]
        row_LV = session.propose(np.array(known), None)[: run.model.config.max_position_embeddings - len(known)]
        order = [sorted(range(V), key=lambda v, row=row: (-row[v], v))[:budget] for row in row_LV]
        token_LK = np.array(order, np.int64).reshape(len(row_LV), min(budget, V))
        logprob_LK = np.take_along_axis(row_LV, token_LK, axis=1)
        tree = ops.tree_build([known[-1]], logprob_LK[None], token_LK[None], budget)
        paths = {0: ()}
        for slot in range(1, tree.node_count_B[0]):
            paths[slot] = (*paths[tree.parent_BN[0, slot]], tree.token_BN[0, slot])
        rest = tuple(tokens[sum(lens) :])
        longest = max(len(path) for path in paths.values() if path == rest[: len(path)])
        lens.append(min(longest + 1, len(rest)))
    return tuple(lens)


@given(runs(builder_names=["ddtree"]))
def test_accept_lens_are_those_of_a_walk_along_plain_tokens(run):
    expected = [
        walk_along(run, prompt, sequence.tokens)
        for prompt, sequence in zip(run.prompts, run.plain.sequences, strict=True)
    ]
    done = speculate(run)
    assert accept_lens(done) == expected
    assert done.target_passes == max(map(len, expected))


@given(runs())
def test_a_run_accounts_for_its_tokens_rounds_and_time(run):
    heard = [[] for _ in run.prompts]
    done = speculative(
        run.model, run.drafter, run.prompts, **run.tree, **run.ends, on_round=lambda s, tokens: heard[s].append(tokens)
    )
    for sequence, rounds in zip(done.sequences, heard, strict=True):
        assert tuple(token for tokens in rounds for token in tokens) == sequence.tokens
        assert tuple(map(len, rounds)) == sequence.accept_lens
    assert done.target_passes == max(len(rounds) for rounds in heard)
    assert tuple(done.seconds) == STAGES
    rounds = sum(map(len, heard))
    assert np.isnan(done.tau) if rounds == 0 else done.tau == sum(len(s.tokens) for s in done.sequences) / rounds


@given(prompts_of_any_length, st.sampled_from([greedy, SEEDED]))
def test_plain_decoding_takes_the_token_after_all_known_ones(prompts, sampler):
    model = target()
    done = autoregressive(model, prompts, max_new_tokens=4, sampler=sampler)
    for prompt, sequence in zip(prompts, done.sequences, strict=True):
        for t, token in enumerate(sequence.tokens):
            known = np.array([*prompt, *sequence.tokens[:t]], np.int32)
            hidden_TD = model.read(model.new_cache(1), 0, known)[-1]
            logit_TV = ops.linear(hidden_TD[-1:], model.weights.lm_head_VD)
            assert sampler(logit_TV, np.array([len(known)])) == token
        assert sequence.accept_lens == (1, 1, 1, 1)


@given(runs())
def test_the_batched_mode_gives_the_same_tokens_in_float64(run):
    run.model = target(np.float64, exact=False, context=run.model.config.max_position_embeddings)
    exact = target(np.float64, context=run.model.config.max_position_embeddings)
    assert streams(speculate(run)) == streams(autoregressive(exact, run.prompts, **run.ends))


@given(prompts_of_any_length, st.integers(0, 12), st.integers(0, 6), st.sampled_from([*ADVERSARIES]))
def test_with_one_candidate_ddtree_is_the_chain_in_tokens_and_accept_lens(prompts, budget, L, name):
    def one_candidate(root_token_B, top_logprob_BLK, top_token_BLK, budget):
        return builders.get("ddtree")(root_token_B, top_logprob_BLK[:, :, :1], top_token_BLK[:, :, :1], budget)

    drafter = adversary(name, L, V)
    tree, chain = (
        speculative(target(), drafter, prompts, budget=budget, max_new_tokens=6, builder=builder)
        for builder in (one_candidate, "chain")
    )
    assert tree.sequences == chain.sequences


def test_twenty_four_tokens_take_three_passes_with_seven_right_drafts_a_round():
    drafter = oracle([TEXT], plain_text(), 7)
    done = speculative(target(), drafter, [TEXT], budget=7, max_new_tokens=24, sampler=SEEDED)
    assert streams(done) == streams(plain_text())
    assert (done.target_passes, accept_lens(done), done.tau) == (3, [(8, 8, 8)], 8.0)


@given(st.integers(0, 7), st.integers(0, 9), st.integers(0, 24), st.sampled_from(["chain", "ddtree"]))
def test_an_oracle_without_errors_takes_the_fewest_passes(L, budget, n, builder):
    drafter = oracle([TEXT], plain_text(), L)
    done = speculative(target(), drafter, [TEXT], budget=budget, max_new_tokens=n, sampler=SEEDED, builder=builder)
    assert done.sequences[0].tokens == plain_text().sequences[0].tokens[:n]
    assert done.target_passes == ceil(n / (min(L, budget) + 1))


@pytest.mark.parametrize("name", ["oracle", "prompt lookup", "random_logits", "plateaus"])
def test_a_larger_budget_never_accepts_less_from_the_same_tokens(name):
    model, L = target(np.float64, exact=False), 4
    tokens = [*TEXT, *plain_text().sequences[0].tokens]
    prompts = [tokens[:t] for t in range(3, 24)]
    plain = autoregressive(model, prompts, max_new_tokens=L + 1, sampler=SEEDED)
    drafters = {"oracle": oracle(prompts, plain, L, 0.5), "prompt lookup": PromptLookup(draft_len=L, vocab_size=V)}
    drafter = drafters.get(name) or adversary(name, L, V)
    first_rounds = []
    for budget in (0, 1, 2, 3, 5, 8, 13, 21, 34):
        done = speculative(model, drafter, prompts, budget=budget, max_new_tokens=L + 1, sampler=SEEDED)
        assert streams(done) == streams(plain)
        first_rounds.append([lens[0] for lens in accept_lens(done)])
    assert (np.diff(first_rounds, axis=0) >= 0).all()
    assert np.max(first_rounds) > 1


@pytest.mark.parametrize("rank", range(5))
def test_a_budget_of_siblings_reaches_as_many_ranks(rank):
    right = plain_text().sequences[0].tokens[0]
    better = [token for token in range(V) if token != right][:rank]
    logprob_V = np.array([-1.0 if token in better else -1.5 if token == right else -9.0 for token in range(V)])
    drafter = Adversary(lambda rng, token_T, L, V: logprob_V[None], 1, V)
    for budget in range(1, 6):
        done = speculative(target(), drafter, [TEXT], budget=budget, max_new_tokens=2, sampler=SEEDED)
        assert accept_lens(done) == [(2,) if budget > rank else (1, 1)]
