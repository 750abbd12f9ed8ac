"""Replay: the accepted lengths of any builder at any budget, from a trace and without a model."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import builders, ops
from .builders import Builder
from .reference.arrays import Index, count
from .reference.tree_batch import NO_NODE, TreeBatch
from .replay_result import ReplayResult
from .trace import Trace, TraceError
from .tree import DraftTree

__all__ = ["replay", "tree_at"]

NEVER = np.iinfo(np.int32).max  # the slot number of a node that no tree holds
UNKNOWN = -1  # the target's token past the recorded continuation; no node carries it
SLOTS = 1 << 17  # tree slots that are built at once: bounds the memory, and more is not faster


def replay(
    trace: Trace,
    builder: str | Builder,
    budgets: Iterable[int],
    *,
    workers: int = 1,
    progress: Callable[[int, int], Any] | None = None,
) -> ReplayResult:
    """Play every sequence of a trace at every budget.

    A round at anchor t accepts a = the most tokens after t that a path of the tree matches, and the next round is at
    t + a + 1; rounds start only while t < anchors - L, where the drafter's whole view is recorded. The target's token
    after a slot of depth d is continuation[t + d + 1], so the rounds are exactly those of a live run.

    Parameters
    ----------
    trace : Trace
    builder : str or Builder
        A name that `builders.get` knows, or a function with the interface of `ops.tree_build`. If it is declared
        nested, one tree an anchor, at the largest budget, answers every budget; otherwise each budget builds its own.
    budgets : iterable of int
        Nodes below the root, 0 or more.
    workers : int
        Threads that share the sequences; kernels release the GIL, builders in plain Python do not.
    progress : callable, optional
        Called as progress(sequences done, sequences) after each sequence.

    Raises
    ------
    ValueError
        A budget is negative or given twice, there is none, the builder is unknown, or workers is 0.
    TraceError
        No sequence has more than L anchors, so that there is no round.

    Cost
    ----
    One build an anchor for a nested builder, whatever the number of budgets.

    Invariants
    ----------
    - the nested shortcut equals rebuilding (test_the_nested_shortcut_equals_rebuilding_at_every_budget)
    - the recorded figures come out (test_the_pilot_trace_gives_the_published_figures)
    - threads change nothing (test_workers_do_not_change_the_result)

    Examples
    --------
    >>> result = replay(Trace.shipped("pilot_t05"), "ddtree", [64])
    >>> round(result.tau[64], 4), result.rounds[64], result.flagged[64]
    (4.1361, 529, 0)
    """
    budgets = tuple(count("budgets", budget) for budget in budgets)
    if not budgets or len(set(budgets)) < len(budgets):
        raise ValueError(f"budgets: got {list(budgets)}, needs one or more, each once")
    if count("workers", workers) == 0:
        raise ValueError("workers: got 0, needs 1 or more")
    if (trace.anchor_count <= trace.draft_len).all():
        raise TraceError(f"anchor_count: got {trace.anchor_count.max()} at most, needs more than L = {trace.draft_len}")
    build = builders.get(builder) if isinstance(builder, str) else builder
    S = len(trace.topk_ids)
    rounds = []
    with ThreadPoolExecutor(workers) as pool:
        for played in pool.map(lambda s: play(trace, s, build, budgets), range(S)):
            rounds.append(played)
            if progress is not None:
                progress(len(rounds), S)
    return ReplayResult(budgets, [r.accept_len_RG for r in rounds], np.array([r.flagged_G for r in rounds]))


@dataclass(frozen=True)
class Rounds:
    """The rounds of one sequence at G budgets; a budget with fewer rounds than another is padded with 0."""

    accept_len_RG: NDArray[np.int64]
    flagged_G: NDArray[np.int64]


def play(trace: Trace, s: int, build: Builder, budgets: tuple[int, ...]) -> Rounds:
    """Play one sequence at every budget."""
    anchors = max(0, int(trace.anchor_count[s]) - trace.draft_len)
    to_build = [max(budgets)] if builders.is_nested(build) else budgets
    tables = [match(trace, s, build, budget, anchors) for budget in to_build]
    matched_LGT = np.stack([matched_LT for matched_LT, _ in tables], axis=1)  # G = 1 serves every budget
    last_rank_GT = np.stack([last_rank_T for _, last_rank_T in tables])
    budget_G = np.array(budgets, np.int32)
    accept_len_GT = 1 + (matched_LGT <= budget_G[:, None]).sum(axis=0, dtype=np.int32)
    ranks_left = trace.vocab_size is None or trace.vocab_size > trace.K
    flagged_GT = (last_rank_GT <= budget_G[:, None]) & (budget_G[:, None] > trace.K) & ranks_left
    return hop(accept_len_GT, flagged_GT)


def match(trace: Trace, s: int, build: Builder, budget: int, anchors: int) -> tuple[Index, Index]:
    """Build the tree of every anchor and walk it along the continuation.

    Returns
    -------
    matched_LT : the slot that the walk accepts at each depth, NEVER past its end
    last_rank_T : the first slot that took rank K - 1, after which a recorded row has nothing left; NEVER if none did
    """
    matched_LT = np.full((trace.draft_len, anchors), NEVER, np.int32)
    last_rank_T = np.full(anchors, NEVER, np.int32)
    block = max(1, SLOTS // (budget + 1))
    for start in range(0, anchors, block):
        anchor_B = np.arange(start, min(start + block, anchors))
        trees, path_BN = build_and_walk(trace, s, anchor_B, build, budget)
        path_LB = path_BN.T[1 : 1 + trace.draft_len]
        matched_LT[: len(path_LB), anchor_B] = np.where(path_LB == NO_NODE, NEVER, path_LB)
        took_last_BN = trees.rank_BN == trace.K - 1
        last_rank_T[anchor_B] = np.where(took_last_BN.any(axis=1), took_last_BN.argmax(axis=1), NEVER)
    return matched_LT, last_rank_T


def build_and_walk(
    trace: Trace, s: int, anchor_B: NDArray[np.int64], build: Builder, budget: int
) -> tuple[TreeBatch, Index]:
    """Return the trees of some anchors of a sequence, and the slots that the target accepts in each."""
    continuation = trace.continuation[s, : trace.anchor_count[s]]
    block = slice(anchor_B[0], anchor_B[-1] + 1)
    trees = build(continuation[block], trace.topk_log_probs[s, block], trace.topk_ids[s, block], budget)
    links = ops.retrieve.on("numba")(trees.parent_BN, trees.node_count_B)
    target_T = np.append(continuation, UNKNOWN)
    target_token_BN = target_T[np.minimum(anchor_B[:, None] + trees.depth_BN + 1, len(continuation))]
    walk = ops.accept_greedy.on("numba")(trees.token_BN, *links, trees.node_count_B, target_token_BN)
    return trees, walk.path_BN


def hop(accept_len_GT: NDArray[np.int32], flagged_GT: NDArray[np.bool_]) -> Rounds:
    """Go from round to round, at all budgets at once; past the last anchor a round has length 0 and stays."""
    G, T = accept_len_GT.shape
    if T == 0:
        return Rounds(np.zeros((0, G), np.int64), np.zeros(G, np.int64))
    most = int(accept_len_GT.max())
    length_GT, flag_GT = np.zeros((G, T + most), np.int64), np.zeros((G, T + most), np.bool_)
    length_GT[:, :T], flag_GT[:, :T] = accept_len_GT, flagged_GT
    anchor_G = np.arange(G) * (T + most)  # as an index into the flat table
    anchors, lengths = [], []
    while (length_G := length_GT.take(anchor_G)).any():
        anchors.append(anchor_G)
        lengths.append(length_G)
        anchor_G = anchor_G + length_G
    return Rounds(np.array(lengths), flag_GT.take(anchors).sum(axis=0))


def tree_at(trace: Trace, sequence: int, anchor: int, builder: str | Builder, budget: int) -> tuple[DraftTree, Index]:
    """Build the tree of one anchor, and return it with the slots that the target accepts, the root first.

    Raises
    ------
    IndexError
        The trace has no such sequence or anchor.
    """
    if not 0 <= sequence < len(trace.topk_ids):
        raise IndexError(f"sequence: got {sequence}, needs 0 to {len(trace.topk_ids) - 1}")
    if not 0 <= anchor < trace.anchor_count[sequence]:
        raise IndexError(f"anchor: got {anchor}, needs 0 to {trace.anchor_count[sequence] - 1}")
    build = builders.get(builder) if isinstance(builder, str) else builder
    trees, path_BN = build_and_walk(trace, sequence, np.array([anchor]), build, budget)
    return DraftTree.from_batch(trees), path_BN[0][path_BN[0] != NO_NODE]
