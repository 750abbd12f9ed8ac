"""Diagnostics of a trace: plain counts, hand cases, and drafters whose answers are known."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdtree import Trace, TraceError, builders, replay, tree_at
from kdtree.diagnostics import after_sibling, calibration, hit_rates, reliability, round_ends, surrogate, target_ranks

PILOT = Trace.shipped("pilot_t05")
EDGES = [0, 0.1, 0.3, 0.31, 0.8, 1]


@st.composite
def traces(draw, vocab=4):
    """Draw a small trace whose drafter is often right; some rows end in -inf, some sequences have no round."""
    S, L = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    T, K = L + draw(st.integers(1, 12)), draw(st.integers(1, vocab))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = np.round(rng.normal(size=(S, T, L, vocab)), draw(st.sampled_from([0, 6])))  # rounding makes ties
    logits[..., 1:][rng.uniform(size=(S, T, L, vocab - 1)) < draw(st.sampled_from([0, 0.3]))] = -np.inf
    log_probs = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)
    ids = np.argsort(-log_probs, axis=-1, kind="stable")[..., :K]
    anchors = [max(draw(st.integers(0, T)), L + 1 if s == 0 else 0) for s in range(S)]
    return Trace.from_arrays(
        prompt=np.zeros((S, 1), int),
        continuation=rng.integers(0, vocab, (S, T)),
        topk_ids=ids,
        topk_log_probs=np.take_along_axis(log_probs, ids, -1),
        anchor_count=anchors,
    )


def known(rows, continuation):
    """Return a trace of one sequence in which every anchor has the same rows: L lists of K (token, probability)."""
    token, prob = np.moveaxis(np.array(rows, float), -1, 0)
    T = len(continuation)
    return Trace.from_arrays(
        prompt=[[0]],
        continuation=[continuation],
        topk_ids=np.tile(token.astype(int), (1, T, 1, 1)),
        topk_log_probs=np.tile(np.log(prob), (1, T, 1, 1)),
    )


def anchors_of(trace):
    """Yield (sequence, anchor) with a whole view."""
    for s, anchors in enumerate(trace.anchor_count.tolist()):
        for t in range(anchors - trace.draft_len):
            yield s, t


def rank_at(trace, s, t, d):
    """Return the rank of the target's token at depth d (from 1); K if the row does not list it."""
    for r in range(trace.K):
        listed = trace.topk_log_probs[s, t, d - 1, r] > -np.inf
        if listed and trace.topk_ids[s, t, d - 1, r] == trace.continuation[s, t + d]:
            return r
    return trace.K


def candidates(trace, d):
    """Yield (rank, stated probability, hit) of every listed candidate of depth d."""
    for s, t in anchors_of(trace):
        for r, logprob in enumerate(trace.topk_log_probs[s, t, d - 1].astype(float)):
            if logprob > -np.inf:
                yield r, np.exp(logprob), rank_at(trace, s, t, d) == r


def close(ours, values):
    np.testing.assert_allclose(ours, np.mean(values) if len(values) else np.nan, rtol=1e-12, atol=1e-12)


@given(traces())
def test_ranks_and_hits_equal_a_plain_count(trace):
    found, within_LK = target_ranks(trace), hit_rates(trace)
    places = list(anchors_of(trace))
    assert list(zip(found.sequence_T.tolist(), found.anchor_T.tolist(), strict=True)) == places
    for d in range(1, trace.draft_len + 1):
        ranks = [rank_at(trace, s, t, d) for s, t in places]
        assert found.rank_TL[:, d - 1].tolist() == ranks
        for k in range(1, trace.K + 1):
            close(within_LK[d - 1, k - 1], [rank < k for rank in ranks])


@given(traces())
def test_calibration_equals_a_plain_count(trace):
    found = calibration(trace)
    for d, r in np.ndindex(found.count_LK.shape):
        here = [(prob, hit) for rank, prob, hit in candidates(trace, d + 1) if rank == r]
        assert found.count_LK[d, r] == len(here)
        close(found.stated_LK[d, r], [prob for prob, _ in here])
        close(found.measured_LK[d, r], [hit for _, hit in here])


@given(traces())
def test_reliability_equals_a_plain_count(trace):
    found, anchors = reliability(trace, EDGES), len(list(anchors_of(trace)))
    for d in range(trace.draft_len):
        error = 0.0
        for g, (low, high) in enumerate(pairwise(EDGES)):
            last = g == len(EDGES) - 2
            here = [(p, hit) for _, p, hit in candidates(trace, d + 1) if low <= p < high or (last and p >= high)]
            assert found.count_LG[d, g] == len(here)
            close(found.stated_LG[d, g], [prob for prob, _ in here])
            close(found.measured_LG[d, g], [hit for _, hit in here])
            error += abs(sum(prob - hit for prob, hit in here)) / anchors
        assert found.error_L[d] == pytest.approx(error, abs=1e-12)


def test_the_error_of_first_choices_is_the_usual_one():
    """Mean over anchors of |confidence - accuracy| of the anchor's bin."""
    first = replace(PILOT, topk_ids=PILOT.topk_ids[..., :1], topk_log_probs=PILOT.topk_log_probs[..., :1])
    found = reliability(first)
    weight_LG = found.count_LG / found.count_LG.sum(axis=1, keepdims=True)
    usual_L = np.nansum(weight_LG * abs(found.stated_LG - found.measured_LG), axis=1)
    np.testing.assert_allclose(found.error_L, usual_L, rtol=1e-12)


@given(traces())
def test_after_sibling_equals_a_plain_count(trace):
    found = after_sibling(trace)
    for d in range(1, trace.draft_len + 1):
        spine, sibling = [], []
        for s, t in anchors_of(trace):
            before = [rank_at(trace, s, t, depth) for depth in range(1, d)]
            first = np.exp(float(trace.topk_log_probs[s, t, d - 1, 0])), rank_at(trace, s, t, d) == 0
            if not any(before):
                spine.append(first)
            elif not any(before[:-1]) and before[-1] < trace.K:
                sibling.append(first)
        for part, here in ((found.spine, spine), (found.sibling, sibling)):
            assert part.count_L[d - 1] == len(here)
            close(part.stated_L[d - 1], [prob for prob, _ in here])
            close(part.right_L[d - 1], [right for _, right in here])


@given(traces(), st.sampled_from(builders.names()), st.integers(0, 9))
def test_round_ends_equal_trees_walked_one_by_one(trace, name, budget):
    ends = round_ends(trace, name, budget)
    lens = replay(trace, name, [budget]).accept_lens[budget]
    assert ends.accept_len_R.tolist() == np.concatenate(lens).tolist()
    assert np.bincount(ends.sequence_R, minlength=len(lens)).tolist() == [len(sequence) for sequence in lens]
    rounds = zip(*(array.tolist() for array in ends[:5]), strict=True)
    following = {}
    for s, t, accept_len, expected_len, missed in rounds:
        assert t == following.get(s, 0)
        following[s] = t + accept_len
        tree, path = tree_at(trace, s, t, name, budget)
        assert (len(path), tree.expected_accept_len) == (accept_len, pytest.approx(expected_len, rel=1e-12))
        if accept_len > trace.draft_len:
            assert missed == -1
            continue
        assert missed == rank_at(trace, s, t, accept_len)
        assert missed not in tree.rank_N[tree.parent_N == path[-1]]


def test_surrogate_is_the_mean_of_round_ends():
    found = surrogate(PILOT, "ddtree", [64, 4])
    assert found.budget_G.tolist() == [64, 4]
    assert found.achieved_G.tolist() == pytest.approx(list(replay(PILOT, "ddtree", [64, 4]).tau.values()), rel=1e-12)
    for budget, expected in zip([64, 4], found.expected_G, strict=True):
        assert expected == round_ends(PILOT, "ddtree", budget).expected_len_R.mean()


def test_a_trace_counted_by_hand():
    """Token 0 with 0.6, else 1; the target writes 0 1 1 2 0 0 and anchors 0 to 3 have a whole view."""
    trace = known([[(0, 0.6), (1, 0.3)], [(0, 0.5), (1, 0.5)]], [0, 1, 1, 2, 0, 0])
    assert target_ranks(trace).rank_TL.tolist() == [[1, 1], [1, 2], [2, 0], [0, 0]]
    np.testing.assert_allclose(hit_rates(trace), [[0.25, 0.75], [0.5, 0.75]])
    found = calibration(trace)
    np.testing.assert_allclose(found.stated_LK, [[0.6, 0.3], [0.5, 0.5]])
    np.testing.assert_allclose(found.measured_LK, [[0.25, 0.5], [0.5, 0.25]])
    assert (found.count_LK == 4).all()
    found = reliability(trace, [0, 0.4, 1])
    np.testing.assert_allclose(found.error_L, [0.2 + 0.35, 1 - 0.75])
    assert found.count_LG.tolist() == [[4, 4], [0, 8]]
    spine, sibling = after_sibling(trace)
    assert (spine.count_L.tolist(), spine.right_L.tolist()) == ([4, 1], [0.25, 1.0])
    assert sibling.count_L.tolist() == [0, 2]  # the token 2 is in no row
    np.testing.assert_array_equal(sibling.right_L, [np.nan, 0.0])
    ends = round_ends(trace, "chain", 2)
    assert ends.anchor_R.tolist() == [0, 1, 2, 3]
    assert ends.accept_len_R.tolist() == [1, 1, 1, 3]
    assert ends.missed_rank_R.tolist() == [1, 1, 2, -1]
    np.testing.assert_allclose(ends.expected_len_R, 1 + 0.6 + 0.3)


def test_a_copied_token_is_right_on_the_spine_and_wrong_after_a_sibling():
    """The second bit copies the first; the drafter expects a copy of its own first choice, a 0."""
    trace = known([[(0, 0.5), (1, 0.5)], [(0, 0.99), (1, 0.01)]], [0, 0, 0])
    both = {name: np.repeat(getattr(trace, name), 2, axis=0) for name in ("prompt", "topk_ids", "topk_log_probs")}
    spine, sibling = after_sibling(Trace.from_arrays(continuation=[[0, 0, 0], [0, 1, 1]], **both))
    assert (spine.count_L.tolist(), spine.right_L.tolist()) == ([2, 1], [0.5, 1.0])
    assert (sibling.count_L[1], sibling.right_L[1], round(float(sibling.stated_L[1]), 2)) == (1, 0.0, 0.99)


def test_a_drafter_that_is_right_looks_so():
    """Independent tokens of known probabilities, and a drafter that states them; then one that is too sure."""
    prob = np.array([0.6, 0.25, 0.1, 0.05])
    text = np.random.default_rng(0).choice(4, 8000, p=prob)
    honest, sure = (known([list(enumerate(row))] * 3, text) for row in (prob, prob**2 / (prob**2).sum()))
    found = calibration(honest)
    np.testing.assert_allclose(found.measured_LK, found.stated_LK, atol=0.02)
    np.testing.assert_allclose(hit_rates(honest), [prob.cumsum()] * 3, atol=0.02)
    spine, sibling = after_sibling(honest)
    np.testing.assert_allclose(spine.right_L, 0.6, atol=0.03)
    np.testing.assert_allclose(sibling.right_L[1:], 0.6, atol=0.03)
    assert reliability(honest).error_L.max() < 0.02 < 0.2 < reliability(sure).error_L.min()
    kept = surrogate(honest, "ddtree", [3, 20])
    np.testing.assert_allclose(kept.achieved_G, kept.expected_G, atol=0.05)
    lost = surrogate(sure, "ddtree", [3, 20])
    assert (lost.expected_G > lost.achieved_G + 0.2).all()


@pytest.mark.parametrize("edges", [[0.5], [0, 0.5], [0.1, 1], [0, 0.5, 0.5, 1], [0, np.nan, 1], 0.5])
def test_edges_that_do_not_ascend_from_0_to_1_are_refused(edges):
    with pytest.raises(ValueError, match="edges: got .*, needs numbers that ascend from 0 to 1"):
        reliability(PILOT, edges)


@pytest.mark.parametrize("function", [target_ranks, hit_rates, calibration, reliability, after_sibling])
def test_a_trace_without_a_whole_view_is_refused(function):
    with pytest.raises(TraceError, match="anchor_count: got 3 at most, needs more than L = 7"):
        function(replace(PILOT, anchor_count=np.full(24, 3, np.int32)))


def test_probabilities_that_round_to_0_are_still_listed():
    trace = known([[(0, 0.5), (1, 0.5)]], [0, 1, 1])
    trace = replace(trace, topk_log_probs=np.full((1, 3, 1, 2), [0.0, -1000.0]))
    found = calibration(trace)
    assert (found.count_LK.tolist(), found.measured_LK.tolist()) == ([[2, 2]], [[0.0, 1.0]])
    assert reliability(trace).count_LG.sum() == 4
