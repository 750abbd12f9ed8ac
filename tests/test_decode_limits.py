"""Where decoding ends, what it refuses, and what the cache holds meanwhile."""

from dataclasses import replace

import numpy as np
import pytest
from adversaries import Adversary, AlwaysWrong, adversary
from decode_fixtures import CONFIG, SEEDED, TEXT, V, accept_lens, oracle, plain_text, streams, target
from hypothesis import given
from hypothesis import strategies as st
from model_fixtures import random_weights

from kdtree import TreeError, ops
from kdtree.decode import autoregressive, speculative
from kdtree.drafters.prompt_lookup import PromptLookup
from kdtree.target import Target

WORDS = plain_text().sequences[0].tokens
FIRST = [i for i in range(1, 7) if WORDS[i] not in WORDS[:i]]  # places in the first path where a stop token can be


class Watched(Target):
    """A target that notes what every verification is given, and may be told to change its logits."""

    def __init__(self, weights, change=None):
        super().__init__(weights, exact=True)
        self.lengths, self.positions, self.rows, self.change, self.cache = [], [], [], change, None

    def verify(self, cache, trees):
        self.cache = cache
        self.lengths.append(cache.length_B.tolist())
        self.rows += [cache.kv_YBSX[:, b, :P].copy() for b, P in enumerate(cache.length_B)]
        real_BN = np.arange(trees.token_BN.shape[1]) < trees.node_count_B[:, None]
        self.positions += (cache.length_B[:, None] + trees.depth_BN)[real_BN].tolist()
        result = super().verify(cache, trees)
        if self.change:
            self.change(len(self.lengths), result.logit_BNV)
        return result


def watched(context=512, change=None):
    return Watched(random_weights(replace(CONFIG, max_position_embeddings=context)), change)


def seven_right_drafts(model, **ends):
    return speculative(model, oracle([TEXT], plain_text(), 7), [TEXT], budget=7, sampler=SEEDED, **ends)


@pytest.mark.parametrize("place", FIRST)
def test_a_stop_token_ends_the_stream_inside_an_accepted_path(place):
    done = seven_right_drafts(target(), max_new_tokens=24, stop_tokens=[WORDS[place]])
    assert streams(done) == [(WORDS[: place + 1], "stop")]
    assert accept_lens(done) == [(place + 1,)]


@pytest.mark.parametrize("place", FIRST)
def test_of_a_stop_token_and_the_limit_in_one_round_the_earlier_ends_the_stream(place):
    for limit, reason in ((place, "length"), (place + 1, "stop"), (place + 2, "stop")):
        done = seven_right_drafts(target(), max_new_tokens=limit, stop_tokens=[WORDS[place]])
        assert streams(done) == [(WORDS[: min(limit, place + 1)], reason)]
        assert done.target_passes == 1


def test_a_stop_token_in_the_prompt_stops_nothing():
    stop = [token for token in TEXT if token not in WORDS[:4]]
    done = seven_right_drafts(target(), max_new_tokens=4, stop_tokens=stop)
    assert streams(done) == [(WORDS[:4], "length")]


@pytest.mark.parametrize("budget", [0, 7])
def test_no_token_is_written_without_a_place_for_it(budget):
    drafter = oracle([TEXT], plain_text(), 7)
    for n, passes in ((0, 0), (1, 1)):
        done = speculative(target(), drafter, [TEXT], budget=budget, max_new_tokens=n, sampler=SEEDED)
        assert streams(done) == [(WORDS[:n], "length")]
        assert (done.target_passes, accept_lens(done)) == (passes, [(1,) * n])


PROMPT_13 = [*TEXT, *WORDS[:10]]


@pytest.mark.parametrize("kind", ["oracle", "lookup", "random_logits"])
@pytest.mark.parametrize(("asked", "reason"), [(3, "length"), (10, "context")])
def test_no_position_beyond_the_context_is_run(kind, asked, reason):
    plain = autoregressive(target(), [PROMPT_13], max_new_tokens=10)
    drafters = {"oracle": oracle([PROMPT_13], plain, 4), "lookup": PromptLookup(draft_len=4, vocab_size=V)}
    model = watched(context=16)
    drafter = drafters.get(kind) or adversary(kind, 4, V)
    done = speculative(model, drafter, [PROMPT_13], budget=9, max_new_tokens=asked)
    assert streams(done) == [(plain.sequences[0].tokens[:3], reason)]
    assert max(model.positions) == 15
    assert streams(done) == streams(autoregressive(target(context=16), [PROMPT_13], max_new_tokens=asked))


def test_a_prompt_that_fills_the_context_gets_no_token():
    prompts = [PROMPT_13[:12], PROMPT_13[:11], PROMPT_13[:1]]
    model = watched(context=12)
    done = speculative(model, adversary("constant", 4, V), prompts, budget=9, max_new_tokens=2)
    assert [len(sequence.tokens) for sequence in done.sequences] == [0, 1, 2]
    assert [sequence.reason for sequence in done.sequences] == ["context", "context", "length"]
    nothing = autoregressive(target(context=12), prompts[:1], max_new_tokens=0)
    assert streams(nothing) == [((), "length")]


prompts_of_any_length = st.lists(st.lists(st.integers(0, V - 1), min_size=1, max_size=6), min_size=1, max_size=3)


@given(prompts_of_any_length, st.integers(0, 9), st.sampled_from([0.0, 0.4]))
def test_after_a_round_the_cache_holds_all_known_tokens_but_the_last(prompts, budget, error_rate):
    model = watched()
    ends = {"max_new_tokens": 8, "stop_tokens": [0, 1], "sampler": SEEDED}
    drafter = oracle(prompts, autoregressive(target(), prompts, **ends), 4, error_rate)
    lens = accept_lens(speculative(model, drafter, prompts, budget=budget, **ends))
    for r, lengths in enumerate(model.lengths):
        going = [s for s in range(len(prompts)) if len(lens[s]) > r]
        assert lengths == [len(prompts[s]) + sum(lens[s][:r]) - 1 for s in going]
    assert model.cache.length_B.size == 0  # every sequence has ended and left it


class Listener:
    """A drafter, and a session of it, that notes the known tokens and all hidden streams heard so far."""

    def __init__(self, drafter, notes):
        self.drafter, self.draft_len, self.notes, self.heard = drafter, drafter.draft_len, notes, []

    def session(self):
        session = Listener(self.drafter, self.notes)
        session.drafter = self.drafter.session()
        return session

    def propose(self, token_T, new_hidden_YTD):
        self.heard.append(new_hidden_YTD)
        self.notes.append((token_T, np.concatenate(self.heard, axis=1)))
        return self.drafter.propose(token_T, new_hidden_YTD)


@given(prompts_of_any_length, st.integers(1, 9))
def test_cache_rows_and_hidden_streams_are_those_of_a_plain_run_bit_for_bit(prompts, budget):
    ends = {"max_new_tokens": 8, "sampler": SEEDED}
    drafter = oracle(prompts, autoregressive(target(), prompts, **ends), 4, error_rate=0.4)
    model, notes = watched(), []
    speculative(model, Listener(drafter, notes), prompts, budget=budget, **ends)
    for (token_T, hidden_YTD), row_YTX in zip(notes, model.rows, strict=True):
        cache = target().new_cache(1)
        np.testing.assert_array_equal(hidden_YTD, target().read(cache, 0, token_T[:-1]))
        np.testing.assert_array_equal(row_YTX, cache.kv_YBSX[:, 0, : len(token_T) - 1])


def test_a_drafter_that_is_always_wrong_costs_a_pass_a_token():
    plain = plain_text()
    done = speculative(
        target(), AlwaysWrong([TEXT], [WORDS], 3, V), [TEXT], budget=9, max_new_tokens=24, sampler=SEEDED
    )
    assert streams(done) == streams(plain)
    assert accept_lens(done) == [(1,) * 24]


def one_token(token):
    return Adversary(lambda rng, token_T, L, V: np.log(np.eye(V)[[token] * L]), 3, V)


def with_head(lm_head_VD):
    return Target(replace(random_weights(CONFIG), lm_head_VD=lm_head_VD), exact=True)


def test_a_target_of_constant_logits_writes_token_0_for_ever_and_accepts_no_other():
    model = with_head(np.zeros((V, CONFIG.hidden_size), np.float32))
    assert streams(autoregressive(model, [[5], [1, 2]], max_new_tokens=7)) == [((0,) * 7, "length")] * 2
    refused = speculative(model, one_token(2), [[5], [1, 2]], budget=3, max_new_tokens=7)
    assert refused.sequences[0].tokens == (0,) * 7
    assert accept_lens(refused) == [(1,) * 7] * 2
    accepted = speculative(model, one_token(0), [[5], [1, 2]], budget=3, max_new_tokens=7)
    assert streams(accepted) == streams(refused)
    assert accept_lens(accepted) == [(4, 3)] * 2


def test_two_equal_dominant_tokens_do_not_part_plain_and_speculative_streams():
    lm_head_VD = random_weights(CONFIG).lm_head_VD * np.float32(1e-4)
    lm_head_VD[[3, 17]] = random_weights(CONFIG, seed=5).lm_head_VD[0]
    lm_head_VD[[6, 20]] = -lm_head_VD[3]  # where the logit of 3 and 17 is negative
    model = with_head(lm_head_VD)
    prompts = [[token] for token in range(V)]
    plain = autoregressive(model, prompts, max_new_tokens=6)
    assert {token for sequence in plain.sequences for token in sequence.tokens} <= {3, 17, 6, 20}
    both = Adversary(lambda rng, token_T, L, V: np.log(np.eye(V)[[[3, 17, 6, 20]] * L].mean(axis=1)), 2, V)
    tree = speculative(model, both, prompts, budget=20, max_new_tokens=6)
    assert streams(tree) == streams(plain)
    assert accept_lens(tree) == [(3, 3)] * V


@pytest.mark.parametrize("among", [slice(None), 4])
def test_nan_logits_are_refused_by_sequence_and_slot_and_nothing_is_emitted(among):
    def poison(round_, logit_BNV):
        if round_ == 2:
            logit_BNV[1, 3, among] = np.nan

    model, heard = watched(change=poison), []
    prompts = [[1], [2, 3, 4], [5, 6]]
    stop = autoregressive(target(), prompts[:1], max_new_tokens=1).sequences[0].tokens  # ends the first sequence
    with pytest.raises(ValueError, match="target: got NaN among the logits of sequence 2, slot 3"):
        speculative(
            model, adversary("constant", 2, V), prompts, budget=4, max_new_tokens=5, stop_tokens=stop,
            on_round=lambda *round_: heard.append(round_),
        )  # fmt: skip
    assert [sequence for sequence, _ in heard] == [0, 1, 2]  # of the first round
    assert model.cache.length_B.tolist() == model.lengths[-1]


def bad(rows, dtype=np.float32):
    return Adversary(lambda rng, token_T, L, V: rows(L, V), 3, V, dtype)


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        (bad(lambda L, V: np.full((L, V), np.nan)), "got nan at depth 1, token 0"),
        (bad(lambda L, V: np.where(np.arange(V) == 5, np.inf, np.zeros((L, V)))), "got inf at depth 1, token 5"),
        (bad(lambda L, V: np.zeros((L - 1, V))), r"got shape \(2, 23\), needs \(L, V\) = \(3, 23\)"),
        (bad(lambda L, V: np.zeros((L, V + 1))), r"got shape \(3, 24\)"),
        (bad(lambda L, V: np.zeros((1, L, V))), r"got shape \(1, 3, 23\)"),
        (bad(lambda L, V: np.zeros((L, V)), np.int64), "got dtype int64, needs float32 or float64"),
    ],
)
def test_a_drafter_that_returns_no_log_probs_is_refused_by_name(drafter, message):
    with pytest.raises(ValueError, match=f"drafter Adversary, sequence 0: {message}"):
        speculative(target(), drafter, [[1]], budget=4, max_new_tokens=5)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "prompts: got none"),
        ([[1], []], r"prompts: got shape \(0,\) at sequence 1, needs 1 to 12 tokens"),
        ([1, 2], r"prompts: got shape \(\) at sequence 0"),
        ([list(range(13))], r"prompts: got shape \(13,\) at sequence 0, needs 1 to 12 tokens"),
        ([[1], [2, 23]], "prompts: got token 23 in sequence 1, needs 0 to 22"),
        ([[-1]], "prompts: got token -1 in sequence 0"),
        ([[1.5]], r"prompts\[0\]: got dtype float64, needs integers"),
    ],
)
def test_prompts_that_cannot_be_read_are_refused(prompts, message):
    with pytest.raises(ValueError, match=message):
        autoregressive(target(context=12), prompts, max_new_tokens=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": -1}, "budget: got -1"),
        ({"max_new_tokens": -1}, "max_new_tokens: got -1"),
        ({"stop_tokens": [-1]}, "stop_tokens: got -1"),
        ({"builder": "dtree"}, "builder: got 'dtree'"),
        ({"budget": 2}, "drafter: got None, needs one for budget 2"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        speculative(target(), None, [[1]], **({"budget": 0, "max_new_tokens": 1} | changes))


def other_root(root_B, lp, token, budget):
    return ops.tree_build(root_B + 1, lp, token, budget)


def no_depths(*inputs):
    trees = ops.tree_build(*inputs)
    return trees._replace(depth_BN=0 * trees.depth_BN)


@pytest.mark.parametrize(
    ("builder", "message"), [(other_root, "the builder's root is"), (no_depths, "depth_BN: got 0")]
)
def test_a_builder_that_would_change_the_text_is_refused(builder, message):
    lookup = PromptLookup(draft_len=3, vocab_size=V)
    with pytest.raises(TreeError, match=message):
        speculative(target(), lookup, [TEXT], budget=4, max_new_tokens=8, builder=builder)


@pytest.mark.parametrize("answer", [[-1], [V], [1.7], [1, 2]])
def test_a_sampler_must_return_a_token_a_row(answer):
    with pytest.raises(ValueError, match="sampler: got"):
        autoregressive(target(), [TEXT], max_new_tokens=2, sampler=lambda logits, positions: np.array(answer))
