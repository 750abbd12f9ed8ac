"""Where the rounds of a replay end, and what their trees promised."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kdtree import builders
from kdtree.builders import Builder
from kdtree.reference.arrays import Index
from kdtree.reference.tree_batch import NO_NODE
from kdtree.replay import replay
from kdtree.trace import Trace

from .marginals import target_ranks

__all__ = ["RoundEnds", "Surrogate", "round_ends", "surrogate"]

Float64 = NDArray[np.float64]
Counts = NDArray[np.int64]


class RoundEnds(NamedTuple):
    """The R rounds of a replay at one budget, in the order of the trace."""

    sequence_R: Index
    anchor_R: Index
    accept_len_R: Counts  #: tokens committed, the bonus included: 1 to L + 1
    expected_len_R: Float64  #: what the tree promises, the sum of q over its slots: `DraftTree.expected_accept_len`
    missed_rank_R: Index  #: rank of the first token not in the tree; K if not listed, -1 if all L depths were accepted
    draft_len: int  #: L of the trace
    K: int  #: recorded tokens of each row of the trace


def round_ends(trace: Trace, builder: str | Builder, budget: int) -> RoundEnds:
    """Say of every round of a replay what its tree promised, what was accepted and which token the tree lacked.

    The missed token of a round is at depth accept_len, one below the accepted path. Its rank is that of its row in the
    marginals, so a token of rank 0 is missed where the path to it had too little weight.

    Raises
    ------
    ValueError, TraceError
        As `replay`.

    Invariants
    ----------
    - the rounds are those of replay (test_round_ends_equal_trees_walked_one_by_one)

    Examples
    --------
    >>> ends = round_ends(Trace.shipped("pilot_t05"), "ddtree", 64)
    >>> len(ends.anchor_R), round(float(ends.accept_len_R.mean()), 4), round(float(ends.expected_len_R.mean()), 4)
    (529, 4.1361, 4.1643)
    """
    accept_lens = replay(trace, builder, [budget]).accept_lens[budget]
    return ends_of(trace, builder, budget, accept_lens, target_ranks(trace).rank_TL)


class Surrogate(NamedTuple):
    """What trees promise and what they bring, in tokens per round, the bonus included; G budgets."""

    budget_G: Index
    expected_G: Float64  #: mean over rounds of the sum of q over the tree
    achieved_G: Float64  #: mean over the same rounds of the accepted length: the pooled tau


def surrogate(trace: Trace, builder: str | Builder, budgets: Iterable[int]) -> Surrogate:
    """Compare what a builder maximises with what it achieves, at the anchors where its own rounds start.

    Raises
    ------
    ValueError, TraceError
        As `replay`.

    Invariants
    ----------
    - achieved is the tau of replay (test_surrogate_is_the_mean_of_round_ends)

    Examples
    --------
    >>> surrogate(Trace.shipped("pilot_t05"), "ddtree", [64]).achieved_G.round(4)
    array([4.1361])
    """
    accept_lens = replay(trace, builder, budgets).accept_lens
    rank_TL = target_ranks(trace).rank_TL
    ends = [ends_of(trace, builder, budget, lens, rank_TL) for budget, lens in accept_lens.items()]
    return Surrogate(
        np.array(list(accept_lens), np.int32),
        np.array([rounds.expected_len_R.mean() for rounds in ends]),
        np.array([rounds.accept_len_R.mean() for rounds in ends]),
    )


def ends_of(trace: Trace, builder: str | Builder, budget: int, accept_lens: list[Counts], rank_TL: Index) -> RoundEnds:
    """Look at the rounds of a replay, given the accepted lengths of each sequence and `target_ranks`."""
    build = builders.get(builder) if isinstance(builder, str) else builder
    row = 0
    sequences, anchors, expected, missed = [], [], [], []
    for s, accept_len_R in enumerate(accept_lens):
        anchor_R = np.cumsum(accept_len_R) - accept_len_R
        given = trace.continuation[s, anchor_R], trace.topk_log_probs[s, anchor_R], trace.topk_ids[s, anchor_R]
        missed_RL = np.pad(rank_TL[row + anchor_R], ((0, 0), (0, 1)), constant_values=NO_NODE)
        sequences.append(np.full(len(anchor_R), s, np.int32))
        anchors.append(anchor_R.astype(np.int32))
        expected.append(np.exp(build(*given, budget).logw_BN).sum(axis=1))
        missed.append(np.take_along_axis(missed_RL, accept_len_R[:, None] - 1, axis=1)[:, 0])
        row += max(0, int(trace.anchor_count[s]) - trace.draft_len)
    return RoundEnds(
        np.concatenate(sequences),
        np.concatenate(anchors),
        np.concatenate(accept_lens),
        np.concatenate(expected),
        np.concatenate(missed),
        trace.draft_len,
        trace.K,
    )
