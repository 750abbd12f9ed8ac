"""Recording: the trace of two functions is what its documents say, and wrong answers are named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kdtree
from kdtree import Seeded, Trace, record
from kdtree.drafters.prompt_lookup import PromptLookup
from kdtree.record import log_probs
from kdtree.reference.top_k import best_tokens

V, L, T = 11, 3, 9


def rows_of(prefix, n, seed=0):
    """Return n rows of logits that are a function of the whole prefix."""
    return np.random.default_rng([seed, *prefix]).normal(size=(n, V)).astype(np.float32)


def target(prefix):
    return rows_of(prefix, 1)[0]


def drafter(prefix):
    return rows_of(prefix, L, seed=1)


@pytest.mark.parametrize("sampler", [kdtree.greedy, Seeded(0.8, seed=3)])
def test_row_d_at_anchor_t_is_about_the_token_d_behind_it(sampler):
    """Play the definition with loops: which prefix each row came from, and in which order tokens were written."""
    prompts = [[1, 2, 3], [7]]
    trace = record(drafter, target, prompts, anchors=T, K=5, sampler=sampler)
    for s, prompt in enumerate(prompts):
        known = list(prompt)
        for t in range(T):
            token = int(sampler(target(known)[None], np.array([len(known)]))[0])
            assert trace.continuation[s, t] == token
            known.append(token)
            for d, row in enumerate(drafter(known)):
                row = row - np.log(np.exp(row.astype(np.float64)).sum())
                best = sorted(range(V), key=lambda token: -row[token])[:5]
                assert trace.topk_ids[s, t, d].tolist() == best
                np.testing.assert_allclose(trace.topk_log_probs[s, t, d], row[best], atol=2e-6)


def test_a_drafter_that_knows_the_next_tokens_is_accepted_in_full():
    """Tokens count upwards; row d says the token d + 1 places behind the prefix, so that the chain takes all of it."""

    def next_is(token):
        return np.where(np.arange(V) == token % V, 0.0, -np.inf)

    trace = record(
        lambda prefix: [next_is(prefix[-1] + 1 + d) for d in range(L)],
        lambda prefix: next_is(prefix[-1] + 1),
        [[0]],
        anchors=13,
        K=1,
    )
    assert kdtree.replay(trace, "chain", [L]).tau == {L: L + 1}


def test_prompts_of_unequal_length_are_padded():
    trace = record(drafter, target, [[1, 2, 3], [7]], anchors=T)
    assert trace.prompt_len.tolist() == [3, 1]
    assert trace.prompt[0].tolist() == [1, 2, 3]
    assert trace.prompt[1, 0] == 7
    assert trace.topk_ids.shape == (2, T, L, V)
    assert trace.vocab_size == V
    alone = record(drafter, target, [[7]], anchors=T)
    np.testing.assert_array_equal(trace.continuation[1], alone.continuation[0])
    np.testing.assert_array_equal(trace.topk_log_probs[1], alone.topk_log_probs[0])


def test_a_stop_token_ends_a_sequence_and_its_anchors():
    free = record(drafter, target, [[1], [2]], anchors=T)
    stop = int(free.continuation[0, 4])
    trace = record(drafter, target, [[1], [2]], anchors=T, stop_tokens=[stop])
    for s in range(2):
        written = free.continuation[s].tolist()
        count = written.index(stop) + 1 if stop in written else T
        assert trace.anchor_count[s] == count
        assert trace.continuation[s, :count].tolist() == written[:count]
        np.testing.assert_array_equal(trace.topk_ids[s, :count], free.topk_ids[s, :count])


def test_the_sampler_gets_absolute_positions():
    seen = []

    def sampler(logit_TV, position_T):
        seen.extend(position_T.tolist())
        return kdtree.greedy(logit_TV, position_T)

    record(drafter, target, [[1, 2, 3], [7]], anchors=4, sampler=sampler)
    assert seen == [3, 4, 5, 6, 1, 2, 3, 4]


def test_a_recorded_trace_is_saved_with_its_metadata(tmp_path):
    steps = []
    trace = record(
        drafter, target, [[1]], anchors=T, metadata={"target": "a"}, progress=lambda *step: steps.append(step)
    )
    assert steps == [(t + 1, T) for t in range(T)]
    trace.save(tmp_path / "t.kdtr")
    assert Trace.load(tmp_path / "t.kdtr").metadata == {"target": "a", "vocab_size": str(V), "schema": "kdtree.trace/1"}


def test_rows_of_log_probs_keep_their_bits():
    lookup = PromptLookup(draft_len=L, vocab_size=V)
    row_LV = lookup.propose(np.array([1, 2, 5, 1, 2], np.int32), np.zeros((0, 0, 0)))
    np.testing.assert_array_equal(log_probs(row_LV), row_LV)
    normed = log_probs(rows_of([1], 4) * 30)
    np.testing.assert_array_equal(log_probs(normed), normed)


@given(st.integers(0, 99), st.sampled_from([np.float16, np.float32, np.float64]), st.floats(-100, 100))
def test_rows_of_logits_are_normed_in_float32(seed, dtype, shift):
    logit_LV = (rows_of([seed], L) + shift).astype(dtype)
    found = log_probs(logit_LV)
    wide = logit_LV.astype(np.float32).astype(np.float64)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wide - np.log(np.exp(wide).sum(axis=1, keepdims=True)), atol=2e-5)


@given(st.lists(st.integers(-3, 3) | st.just(-np.inf), min_size=1, max_size=30), st.integers(1, 33))
def test_the_best_tokens_are_those_of_a_stable_sort(values, K):
    row_LV = np.array([values, values[::-1]], np.float32)
    ids, rows = best_tokens(row_LV, K)
    np.testing.assert_array_equal(ids, np.argsort(-row_LV, axis=1, kind="stable")[:, :K])
    np.testing.assert_array_equal(rows, np.take_along_axis(row_LV, ids, axis=1))


# What is refused.


def at_third_anchor(good, bad):
    """Return a function that goes wrong in the second sequence, at anchor 2."""

    def answer(prefix):
        return bad if prefix[0] == 7 and len(prefix) >= 3 else good(prefix)

    return answer


NAN = np.where(np.arange(V) == 4, np.nan, 0.0)
WRONG = [
    (np.zeros((V, 1)), r"got shape \(11, 1\), needs \(V\)", r"got shape \(11, 1\), needs that of its first"),
    (np.zeros(V - 1), r"got shape \(10,\), needs that of its first answer, \(11,\)", r"\(10,\), needs \(L, V\)"),
    (NAN, r"got nan at \[4\], needs finite numbers", None),
    (np.full(V, -np.inf), "got -inf for every token, needs one that can be written", None),
    (np.stack([NAN] * L), None, r"got nan at \[0, 4\], needs finite numbers"),
    (np.full((L, V), np.inf), None, r"got inf at \[0, 0\], needs finite numbers"),
    (np.zeros((L - 1, V)), None, r"got shape \(2, 11\), needs that of its first answer, \(3, 11\)"),
    (np.zeros((L, V), int), "got dtype int64, needs float32", "got dtype int64, needs float32"),
    (np.full((L, V), 1e39), None, r"got inf at \[0, 0\], needs finite numbers"),  # in float32
    ([[1.0], [1.0, 2.0]], "inhomogeneous", "inhomogeneous"),
]


@pytest.mark.parametrize(("bad", "of_target", "of_drafter"), WRONG)
def test_a_wrong_answer_is_refused_by_callable_sequence_and_anchor(bad, of_target, of_drafter):
    if of_target:
        with pytest.raises(ValueError, match=f"^target, sequence 1, anchor 2: .*{of_target}"):
            record(drafter, at_third_anchor(target, bad), [[1], [7]], anchors=T)
    if of_drafter:
        with pytest.raises(ValueError, match=f"^drafter, sequence 1, anchor 1: .*{of_drafter}"):
            record(at_third_anchor(drafter, bad), target, [[1], [7]], anchors=T)


def test_a_drafter_of_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match="^drafter, sequence 0, anchor 0: got V = 12, needs the target's, 11"):
        record(lambda prefix: np.zeros((L, V + 1)), target, [[1]], anchors=T)


@pytest.mark.parametrize("error", [RuntimeError, IndexError, KeyError, TypeError])
def test_an_error_of_a_callable_is_named(error):
    def broken(prefix):
        raise error("out of memory")

    with pytest.raises(ValueError, match="^drafter, sequence 0, anchor 0: '?out of memory"):
        record(broken, target, [[1]], anchors=T)


@pytest.mark.parametrize("token", [[V], [-1], [1, 2], [1.0]])
def test_a_sampler_that_returns_no_token_is_refused(token):
    with pytest.raises(ValueError, match="^sampler, sequence 0, anchor 0: got"):
        record(drafter, target, [[1]], anchors=T, sampler=lambda *_: np.array(token))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": []}, "prompts: got none, needs one or more"),
        ({"prompts": [[1], []]}, r"prompts: got shape \(0,\) at sequence 1, needs 1 or more tokens"),
        ({"prompts": [[1], [[2]]]}, r"prompts: got shape \(1, 1\) at sequence 1"),
        ({"prompts": [[1, [2]]]}, r"prompts\[0\]: got nested lists of unequal length"),
        ({"prompts": [[1.5]]}, r"prompts\[0\]: got dtype float64, needs integers"),
        ({"prompts": [[1], [2, V]]}, "prompts, sequence 1, anchor 0: got token 11, needs 0 to 10"),
        ({"prompts": [[-1]]}, "prompts: got token -1 in sequence 0, needs 0 or more"),
        ({"anchors": 0}, "anchors, K: got 0 and 64, needs 1 or more of each"),
        ({"K": 0}, "anchors, K: got 9 and 0, needs 1 or more of each"),
        ({"K": -1}, "K: got -1"),
        ({"metadata": {"a": 1}}, "metadata: got 'a': 1, needs strings"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        record(drafter, target, **{"prompts": [[1]], "anchors": T} | changes)
