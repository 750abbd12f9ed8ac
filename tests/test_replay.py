"""Replay: the recorded figures, the shortcut, and a live loop to hold it to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdtree import DraftTree, Trace, TraceError, builders, ops, replay, tree_at

PILOT = Trace.shipped("pilot_t05")
FIGURES = {  # budget: tau, rounds (None where the design states tau alone)
    1: (1.7045, None),
    4: (2.7285, None),
    7: (3.2044, None),
    8: (3.2714, None),
    16: (3.5431, 615),
    32: (3.8398, None),
    64: (4.1361, 529),
    128: (4.3727, None),
    256: (4.6300, 473),
}


def rebuilt(*inputs):
    """Build like ddtree, without the declaration that lets replay share trees between budgets."""
    return builders.get("ddtree")(*inputs)


def pruned(root, lp, token, budget):
    """Build trees that are not nested: the best quarter of the budget, twice as wide for odd budgets."""
    return ops.tree_build.on("numba")(root, lp[:, :, : 1 + budget % 2], token[:, :, : 1 + budget % 2], budget)


@st.composite
def traces(draw, vocab=4):
    """Draw a small trace whose drafter is often right: few tokens, full rows."""
    S, L = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    T = L + draw(st.integers(1, 12))
    K = draw(st.integers(1, vocab))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = np.round(rng.normal(size=(S, T, L, vocab)), draw(st.sampled_from([0, 6])))  # rounding makes ties
    log_probs = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)
    ids = np.argsort(-log_probs, axis=-1, kind="stable")[..., :K]
    anchors = [draw(st.integers(0, T)) for _ in range(S)]
    anchors[0] = max(anchors[0], L + 1)
    return Trace.from_arrays(
        prompt=np.zeros((S, 1), int),
        continuation=rng.integers(0, vocab, (S, T)),
        topk_ids=ids,
        topk_log_probs=np.take_along_axis(log_probs, ids, -1),
        anchor_count=anchors,
        metadata={"vocab_size": str(vocab)},
    )


def live(trace, s, builder, budget):
    """Decode sequence s again with the numpy truth, one tree a round; return accepted lengths and flagged rounds."""
    t, lengths, flagged = 0, [], 0
    text = trace.continuation[s]
    while t < trace.anchor_count[s] - trace.draft_len:
        tree = DraftTree.from_batch(builder(text[[t]], trace.topk_log_probs[s, [t]], trace.topk_ids[s, [t]], budget))
        depth = 0
        for slot in range(tree.node_count):
            path = tree.path(slot)[1:]
            if tree.token_N[path].tolist() == text[t + 1 : t + 1 + len(path)].tolist():
                depth = max(depth, len(path))
        flagged += budget > trace.K and trace.vocab_size > trace.K and trace.K - 1 in tree.rank_N
        lengths.append(depth + 1)
        t += depth + 1
    return lengths, flagged


def test_the_pilot_trace_gives_the_published_figures():
    result = replay(PILOT, "ddtree", FIGURES)
    for budget, (tau, rounds) in FIGURES.items():
        assert round(result.tau[budget], 4) == tau
        assert rounds in (None, result.rounds[budget])
    assert round(result.macro_tau[7], 4) == 3.5898
    assert round(result.macro_tau[64], 4) == 4.4320
    assert result.flagged == {**dict.fromkeys(FIGURES, 0), 256: 2}


def test_the_chain_of_the_pilot_trace_gives_the_published_figure():
    result = replay(PILOT, "chain", [7, 256])
    assert {round(tau, 4) for tau in result.tau.values()} == {2.7985}
    assert result.rounds == {7: 779, 256: 779}


@given(traces(), st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True), st.sampled_from(builders.names()))
def test_replay_equals_a_live_walk_round_by_round(trace, budgets, name):
    result = replay(trace, name, budgets)
    for budget in budgets:
        lived = [live(trace, s, builders.get(name), budget) for s in range(len(trace.topk_ids))]
        assert [lens.tolist() for lens in result.accept_lens[budget]] == [lengths for lengths, _ in lived]
        assert result.flagged[budget] == sum(flagged for _, flagged in lived)


@given(traces(), st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True))
def test_trees_that_are_not_nested_are_rebuilt_at_every_budget(trace, budgets):
    result = replay(trace, pruned, budgets)
    for budget in budgets:
        lived = [live(trace, s, pruned, budget)[0] for s in range(len(trace.topk_ids))]
        assert [lens.tolist() for lens in result.accept_lens[budget]] == lived


def test_the_nested_shortcut_equals_rebuilding_at_every_budget():
    budgets = range(257)
    short, long = replay(PILOT, "ddtree", budgets), replay(PILOT, rebuilt, budgets)
    assert short.tau == long.tau
    assert short.flagged == long.flagged
    for budget in budgets:
        for lens, others in zip(short.accept_lens[budget], long.accept_lens[budget], strict=True):
            np.testing.assert_array_equal(lens, others)


def test_workers_do_not_change_the_result():
    one, three = (replay(PILOT, "ddtree", [0, 7, 64], workers=workers) for workers in (1, 3))
    assert one.tau == three.tau
    assert one.flagged == three.flagged


def test_the_parts_of_a_result_agree():
    result = replay(PILOT, "ddtree", [0, 5, 64])
    for budget in result.budgets:
        lens = result.accept_lens[budget]
        assert result.rounds[budget] == sum(map(len, lens))
        assert result.tau[budget] == pytest.approx(np.concatenate(lens).mean(), rel=1e-12)
        assert result.macro_tau[budget] == pytest.approx(np.mean([sequence.mean() for sequence in lens]), rel=1e-12)
        low, high = result.tau_interval[budget]
        assert low <= result.tau[budget] <= high
        low, high = result.macro_tau_interval[budget]
        assert low <= result.macro_tau[budget] <= high
    assert result.tau[0] == 1.0  # the root alone: autoregressive decoding
    assert result.tau_interval[0] == (1.0, 1.0)


def test_intervals_cover_the_mean_of_known_sequences_about_as_often_as_stated():
    """Sequences of i.i.d. lengths with mean 3: the 95% interval should miss it in a few percent of experiments."""
    from kdtree.replay_result import ReplayResult

    rng, misses = np.random.default_rng(1), 0
    for _ in range(200):
        lengths = [rng.integers(1, 6, (30, 1)) for _ in range(40)]
        low, high = ReplayResult((1,), lengths, np.zeros((40, 1), np.int64)).tau_interval[1]
        misses += not low <= 3 <= high
    assert 0.01 * 200 <= misses <= 0.12 * 200


def test_a_sequence_too_short_for_a_round_counts_nowhere():
    short = Trace.from_arrays(
        prompt=np.zeros((2, 1), int),
        continuation=np.zeros((2, 3), int),
        topk_ids=np.zeros((2, 3, 1, 1), int),
        topk_log_probs=np.zeros((2, 3, 1, 1), np.float32),
        anchor_count=[3, 1],
    )
    result = replay(short, "chain", [1])
    assert result.accept_lens[1][1].tolist() == []
    assert result.tau[1] == result.macro_tau[1] == 2.0
    assert result.tau_interval[1] == (2.0, 2.0)


def test_progress_is_reported_once_a_sequence():
    seen = []
    replay(PILOT, "chain", [1], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 24) for done in range(1, 25)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("ddtree", []), ValueError, r"budgets: got \[\]"),
        (("ddtree", [4, 4]), ValueError, "each once"),
        (("ddtree", [-1]), ValueError, "budgets: got -1"),
        (("ddtree", [1.5]), TypeError, "budgets: got 1.5"),
        (("tree", [1]), ValueError, "builder: got 'tree'"),
    ],
)
def test_bad_requests_are_refused_before_any_work(arguments, error, message):
    with pytest.raises(error, match=message):
        replay(PILOT, *arguments)


def test_no_worker_and_no_round_are_refused():
    with pytest.raises(ValueError, match="workers: got 0"):
        replay(PILOT, "chain", [1], workers=0)
    stub = Trace.from_arrays(
        prompt=[[0]],
        continuation=[[0]],
        topk_ids=np.zeros((1, 1, 1, 1), int),
        topk_log_probs=np.zeros((1, 1, 1, 1), np.float32),
    )
    with pytest.raises(TraceError, match="anchor_count: got 1 at most, needs more than L = 1"):
        replay(stub, "chain", [1])


def test_an_error_of_the_builder_comes_through():
    def broken(*_):
        raise RuntimeError("no tree today")

    with pytest.raises(RuntimeError, match="no tree today"):
        replay(PILOT, broken, [1])


def test_the_tree_of_an_anchor_comes_with_its_accepted_path():
    tree, path = tree_at(PILOT, 0, 5, "ddtree", 64)
    text = PILOT.continuation[0]
    assert tree.token_N[0] == text[5]
    assert tree.token_N[path].tolist() == text[5 : 5 + len(path)].tolist()
    assert path[0] == 0
    lengths = replay(PILOT, "ddtree", [64]).accept_lens[64][0]
    assert len(tree_at(PILOT, 0, 0, "ddtree", 64)[1]) == lengths[0]


@pytest.mark.parametrize(("sequence", "anchor", "name"), [(24, 0, "sequence"), (-1, 0, "sequence"), (0, 96, "anchor")])
def test_a_place_that_the_trace_lacks_is_refused(sequence, anchor, name):
    with pytest.raises(IndexError, match=f"{name}: got"):
        tree_at(PILOT, sequence, anchor, "ddtree", 4)


def test_nothing_past_the_recorded_continuation_is_accepted():
    tree, path = tree_at(PILOT, 0, 95, "ddtree", 256)
    assert tree.node_count == 257
    assert path.tolist() == [0]


def test_a_round_is_flagged_only_where_the_budget_exceeds_the_recorded_ranks():
    """K = 1 of a vocabulary of 9: budget 1 needs no second rank, budget 2 does in every round."""
    trace = Trace.from_arrays(
        prompt=[[0]],
        continuation=np.zeros((1, 8), int),
        topk_ids=np.zeros((1, 8, 1, 1), int),
        topk_log_probs=np.full((1, 8, 1, 1), -0.1, np.float32),
        metadata={"vocab_size": "9"},
    )
    result = replay(trace, "ddtree", [1, 2])
    assert result.flagged == {1: 0, 2: result.rounds[2]}
