"""How right a drafter's marginals are: ranks of the target's tokens, calibration, and what comes after a sibling.

Counts are over T anchors: all anchors of all sequences with t < anchors - L, where the whole view is recorded. A row
lists the tokens whose log-prob is above -inf; a target's token that it does not list has rank K. The views of
neighbouring anchors overlap, so the counts are not independent.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from kdtree.reference.arrays import Bool, Float, Index
from kdtree.trace import Trace, TraceError

__all__ = [
    "AfterSibling",
    "Calibration",
    "FirstChoice",
    "Reliability",
    "TargetRanks",
    "after_sibling",
    "calibration",
    "hit_rates",
    "reliability",
    "target_ranks",
]

Float64 = NDArray[np.float64]
Counts = NDArray[np.int64]

TENTHS = tuple(i / 10 for i in range(11))


class TargetRanks(NamedTuple):
    """Where the drafter's rows have the target's tokens, at T anchors in the order of the trace."""

    sequence_T: Index
    anchor_T: Index
    rank_TL: Index  #: rank of continuation[anchor + d] in row d; K if the row does not list it


def target_ranks(trace: Trace) -> TargetRanks:
    """Return the rank that the drafter gave to the target's token, at every anchor and depth.

    Raises
    ------
    TraceError
        No sequence has more than L anchors.

    Invariants
    ----------
    - a rank is the place of the token in its row (test_ranks_and_hits_equal_a_plain_count)

    Examples
    --------
    >>> target_ranks(Trace.shipped("pilot_t05")).rank_TL[:3].tolist()
    [[0, 10, 11, 0, 7, 2, 0], [5, 10, 0, 8, 2, 1, 4], [0, 0, 3, 6, 0, 5, 8]]
    """
    sequences, anchors, ranks = [], [], []
    for view in views(trace):
        s, hit_TLK = view.sequence, view.hit_TLK
        T = len(hit_TLK)
        sequences.append(np.full(T, s, np.int32))
        anchors.append(np.arange(T, dtype=np.int32))
        ranks.append(np.where(hit_TLK.any(axis=2), hit_TLK.argmax(axis=2), trace.K).astype(np.int32))
    return TargetRanks(np.concatenate(sequences), np.concatenate(anchors), np.concatenate(ranks))


def hit_rates(trace: Trace) -> Float64:
    """Return how often the target's token is among the best k: the share of anchors with rank < k, by depth.

    Returns
    -------
    within_LK : float64, shape (L, K)
        Column k - 1 is the rate of the best k: the first is top-1, and what the last lacks to 1 was not recorded.

    Raises
    ------
    TraceError
        No sequence has more than L anchors.

    Invariants
    ----------
    - it is the count of a plain loop (test_ranks_and_hits_equal_a_plain_count)

    Examples
    --------
    >>> hit_rates(Trace.shipped("pilot_t05"))[:, [0, 3, 63]].round(3)[0]
    array([0.736, 0.88 , 1.   ])
    """
    rank_TL = target_ranks(trace).rank_TL
    at_LK = np.stack([np.bincount(rank_T, minlength=trace.K + 1)[:-1] for rank_T in rank_TL.T])
    return np.asarray(at_LK.cumsum(axis=1) / len(rank_TL))


class Calibration(NamedTuple):
    """Stated against measured probability of every place (depth, rank); NaN where no row lists that rank."""

    stated_LK: Float64  #: mean of exp(log-prob) over the rows that list the rank
    measured_LK: Float64  #: share of these rows whose token at the rank is the target's
    count_LK: Counts  #: rows that list the rank


def calibration(trace: Trace) -> Calibration:
    """Compare what the drafter states at each depth and rank with how often it is right there.

    A calibrated drafter has stated = measured up to chance, at every depth and rank.

    Raises
    ------
    TraceError
        No sequence has more than L anchors.

    Invariants
    ----------
    - it is the count of a plain loop (test_calibration_equals_a_plain_count)
    - a drafter that knows the distribution is calibrated (test_a_drafter_that_is_right_looks_so)

    Examples
    --------
    >>> found = calibration(Trace.shipped("pilot_t05"))
    >>> found.stated_LK[0, :2].round(3).tolist(), found.measured_LK[0, :2].round(3).tolist()
    ([0.74, 0.075], [0.736, 0.076])
    """
    stated_LK, hits_LK = np.zeros((2, trace.draft_len, trace.K))
    count_LK = np.zeros(stated_LK.shape, np.int64)
    for view in views(trace):
        stated_LK += view.prob_TLK.sum(axis=0)
        hits_LK += view.hit_TLK.sum(axis=0)
        count_LK += view.listed_TLK.sum(axis=0)
    return Calibration(mean(stated_LK, count_LK), mean(hits_LK, count_LK), count_LK)


class Reliability(NamedTuple):
    """Stated against measured probability by depth and bin of stated probability, G bins; NaN in an empty bin."""

    stated_LG: Float64  #: mean stated probability of the candidates in the bin
    measured_LG: Float64  #: share of them that are the target's token
    count_LG: Counts  #: candidates in the bin
    error_L: Float64  #: expected calibration error per anchor, see `reliability`


def reliability(trace: Trace, edges: ArrayLike = TENTHS) -> Reliability:
    """Compare stated with measured probability over the candidates of all ranks, in bins of stated probability.

    error = sum over bins of |sum of stated - hits| / anchors: the probability, of a row's 1, that stands in bins which
    deserve more or less. Of a trace cut to K = 1 it is the usual expected calibration error of the first choice.

    Parameters
    ----------
    trace : Trace
    edges : float, shape (G + 1,)
        From 0 to 1, ascending. A bin holds its lower edge, the last one its upper edge too.

    Raises
    ------
    ValueError
        The edges do not ascend from 0 to 1.
    TraceError
        No sequence has more than L anchors.

    Invariants
    ----------
    - it is the count of a plain loop (test_reliability_equals_a_plain_count)
    - with one candidate a row the error is the usual one (test_the_error_of_first_choices_is_the_usual_one)

    Examples
    --------
    >>> reliability(Trace.shipped("pilot_t05")).error_L[[0, -1]].round(3)
    array([0.046, 0.217])
    """
    edges_G = np.asarray(edges, np.float64)
    if edges_G.ndim != 1 or len(edges_G) < 2 or edges_G[0] != 0 or edges_G[-1] != 1 or not (np.diff(edges_G) > 0).all():
        raise ValueError(f"edges: got {edges_G.tolist()}, needs numbers that ascend from 0 to 1")
    L, G = trace.draft_len, len(edges_G) - 1
    stated_LG, hits_LG, count_LG, anchors = np.zeros((L, G)), np.zeros((L, G)), np.zeros((L, G), np.int64), 0
    for view in views(trace):
        prob_TLK, listed_TLK, hit_TLK = view.prob_TLK, view.listed_TLK, view.hit_TLK
        anchors += len(prob_TLK)
        bin_TLK = np.minimum(np.searchsorted(edges_G, prob_TLK, side="right") - 1, G - 1)  # rounding may exceed 1
        for d in range(L):
            bins = bin_TLK[:, d].ravel()
            stated_LG[d] += np.bincount(bins, prob_TLK[:, d].ravel(), G)
            hits_LG[d] += np.bincount(bins, hit_TLK[:, d].ravel(), G)
            count_LG[d] += np.bincount(bins, listed_TLK[:, d].ravel(), G).astype(np.int64)
    error_L = np.abs(stated_LG - hits_LG).sum(axis=1) / anchors
    return Reliability(mean(stated_LG, count_LG), mean(hits_LG, count_LG), count_LG, error_L)


class FirstChoice(NamedTuple):
    """The first choice of each depth, over a subset of anchors that differs by depth; NaN where it is empty."""

    stated_L: Float64  #: mean stated probability
    right_L: Float64  #: share of anchors at which it is the target's token
    count_L: Counts  #: anchors


class AfterSibling(NamedTuple):
    """The first choice of depth d, by what the target wrote before it."""

    spine: FirstChoice  #: first choices at depths 1 to d - 1
    sibling: FirstChoice  #: first choices at depths 1 to d - 2, then another listed token; nothing at depth 1


def after_sibling(trace: Trace) -> AfterSibling:
    """Compare how often the next first choice is right on the spine and just after the target left it.

    DDTree gives all nodes of a depth the same distribution over children: q(child) = q(node) q_d(token). Even an exact
    q_d averages over the tokens before depth d, mostly those of the spine, so it may be too high after a sibling.

    Raises
    ------
    TraceError
        No sequence has more than L anchors.

    Invariants
    ----------
    - it is the count of a plain loop (test_after_sibling_equals_a_plain_count)
    - where tokens do not depend on each other, nothing changes (test_a_drafter_that_is_right_looks_so)
    - copies of a sibling are never foreseen (test_a_copied_token_is_right_on_the_spine_and_wrong_after_a_sibling)

    Examples
    --------
    >>> found = after_sibling(Trace.shipped("pilot_t05"))
    >>> for part in found:
    ...     print(part.stated_L[1].round(2), part.right_L[1].round(2), part.count_L[1])
    0.75 0.76 1572
    0.36 0.18 564
    """
    rank_TL = target_ranks(trace).rank_TL
    first_TL = np.concatenate([view.prob_TLK[:, :, 0] for view in views(trace)])
    spine_TL = np.ones(rank_TL.shape, np.bool_)
    spine_TL[:, 1:] = np.logical_and.accumulate(rank_TL[:, :-1] == 0, axis=1)
    sibling_TL = np.zeros(rank_TL.shape, np.bool_)
    sibling_TL[:, 1:] = spine_TL[:, :-1] & (rank_TL[:, :-1] > 0) & (rank_TL[:, :-1] < trace.K)
    return AfterSibling(first_choice(first_TL, rank_TL, spine_TL), first_choice(first_TL, rank_TL, sibling_TL))


def first_choice(first_TL: Float64, rank_TL: Index, chosen_TL: Bool) -> FirstChoice:
    """Average the first choices of the chosen anchors of each depth."""
    count_L = chosen_TL.sum(axis=0)
    stated_L = np.where(chosen_TL, first_TL, 0).sum(axis=0)
    return FirstChoice(mean(stated_L, count_L), mean((chosen_TL & (rank_TL == 0)).sum(axis=0), count_L), count_L)


class View(NamedTuple):
    """A sequence's candidates at its T anchors with a whole view."""

    sequence: int
    logprob_TLK: Float
    listed_TLK: Bool  #: False where the log-prob is -inf
    hit_TLK: Bool  #: the candidate is listed and the target's token

    @property
    def prob_TLK(self) -> Float64:
        """Stated probability."""
        return np.asarray(np.exp(self.logprob_TLK.astype(np.float64)))


def views(trace: Trace) -> Iterator[View]:
    """Yield the sequences that have more than L anchors, one at a time: all at once may not fit into memory."""
    L = trace.draft_len
    if (trace.anchor_count <= L).all():
        raise TraceError(f"anchor_count: got {trace.anchor_count.max(initial=0)} at most, needs more than L = {L}")
    for s in np.flatnonzero(trace.anchor_count > L).tolist():
        T = int(trace.anchor_count[s]) - L
        target_TL = sliding_window_view(trace.continuation[s, 1 : T + L], L)
        logprob_TLK = trace.topk_log_probs[s, :T]
        listed_TLK = logprob_TLK > -np.inf
        hit_TLK = listed_TLK & (trace.topk_ids[s, :T] == target_TL[:, :, None])
        yield View(s, logprob_TLK, listed_TLK, hit_TLK)


def mean(total: ArrayLike, count: Counts) -> Float64:
    """Divide, with NaN where there is nothing to average."""
    return np.asarray(np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0))
