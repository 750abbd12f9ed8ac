"""The decode loop: plain decoding is speculative decoding whose trees are a root alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import builders, ops
from .builders import Builder
from .cache import LatentCache
from .decode_result import Decoding
from .decode_stream import Limits, Stream, open_streams
from .drafters import Drafter
from .reference.arrays import Float, Index, count, floats, integers
from .reference.errors import TreeError
from .reference.top_k import best_tokens
from .reference.transformer import Forward
from .reference.tree_batch import NO_NODE, ROOT, TreeBatch
from .reference.tree_checks import check_parents, real_slots
from .sampling import Sampler, greedy
from .target import Target

__all__ = ["autoregressive", "speculative"]

STAGES = ("prefill", "draft", "build", "verify", "accept", "commit")


def autoregressive(
    target: Target,
    prompts: Sequence[ArrayLike],
    *,
    max_new_tokens: int,
    stop_tokens: Iterable[int] = (),
    sampler: Sampler = greedy,
    on_round: Callable[[int, tuple[int, ...]], Any] | None = None,
) -> Decoding:
    """Decode token by token: `speculative` with budget 0, so that a round is a root and commits one token."""
    return speculative(
        target,
        None,
        prompts,
        budget=0,
        max_new_tokens=max_new_tokens,
        stop_tokens=stop_tokens,
        sampler=sampler,
        on_round=on_round,
    )


def speculative(
    target: Target,
    drafter: Drafter | None,
    prompts: Sequence[ArrayLike],
    *,
    budget: int,
    max_new_tokens: int,
    stop_tokens: Iterable[int] = (),
    sampler: Sampler = greedy,
    builder: str | Builder = "ddtree",
    on_round: Callable[[int, tuple[int, ...]], Any] | None = None,
) -> Decoding:
    """Decode with draft trees; the tokens are those of plain decoding.

    A round, over all unfinished sequences at once: the drafter gives marginals, the builder makes a tree of them below
    the last known token, one pass of the target verifies it, the sampler puts a token after every slot, and the walk
    along these tokens is committed, one by one, until a stop token or a limit. Then the cache holds all known tokens
    but the last.

    Parameters
    ----------
    target : Target
        With exact=True tokens equal plain decoding bit for bit; otherwise up to near-ties of the logits.
    drafter : Drafter or None
        Not asked with budget 0, where None will do.
    prompts : sequence of token sequences, each of 1 or more tokens and at most max_position_embeddings
    budget : int
        Nodes of a tree below its root. A pass needs O(B N^2) bytes for the mask and O(B N V) for the logits.
    max_new_tokens : int
        New tokens of each sequence: "length" ends it.
    stop_tokens : iterable of int
        "stop" ends a sequence right behind the first of them among its new tokens.
    sampler : Sampler
        `greedy`, or `Seeded(temperature, seed)`.
    builder : str or Builder
        A name that `builders.get` knows, or a function with the interface of `ops.tree_build`. Of each row of the
        marginals it gets the min(budget, V) best tokens, equal ones by the lower token.
    on_round : callable, optional
        Called as on_round(sequence, tokens) with what each round commits.

    Returns
    -------
    Decoding
        Prompt and new tokens together never exceed max_position_embeddings: "context" ends a sequence that has so
        many. Near it drafts are cut to the positions below it.

    Raises
    ------
    ValueError
        An argument is out of its range; a drafter returns NaN, +inf or a wrong shape; the target's logits have NaN; the
        sampler returns something else than a token a row.
    TreeError
        The builder returns another root than the last known token, or no tree.

    Invariants
    ----------
    - no drafter, budget or builder changes a token
      (test_speculative_tokens_are_those_of_plain_decoding_bit_for_bit)
    - a round commits what a walk along the plain tokens finds (test_accept_lens_are_those_of_a_walk_along_plain_tokens)
    - the cache holds all known tokens but the last (test_after_a_round_the_cache_holds_all_known_tokens_but_the_last)
    - the context limit is never passed (test_no_position_beyond_the_context_is_run)
    """
    build = builders.get(builder) if isinstance(builder, str) else builder
    budget = count("budget", budget)
    if budget and drafter is None:
        raise ValueError(f"drafter: got None, needs one for budget {budget}")
    limits = Limits(
        count("max_new_tokens", max_new_tokens),
        frozenset(count("stop_tokens", token) for token in stop_tokens),
        target.config.max_position_embeddings,
    )
    streams = open_streams(prompts, target.config.vocab_size, limits)
    active = [stream for stream in streams if stream.reason is None]
    clock = Clock()
    passes = 0
    with clock.time("prefill"):
        cache = prefill(target, drafter if budget else None, active)
    while active:
        with clock.time("draft"):
            marginals = draft(active, drafter, budget, target.config.vocab_size, limits)
        with clock.time("build"):
            root_B = np.array([stream.known[-1] for stream in active], np.int32)
            trees = trimmed(build(root_B, *marginals, budget), root_B)
        with clock.time("verify"):
            verified = target.verify(cache, trees)
        with clock.time("accept"):
            token_BN = next_tokens(active, trees, verified.logit_BNV, cache.length_B, sampler)
            path_BN = accepted_paths(trees, token_BN)
        with clock.time("commit"):
            commit(active, cache, token_BN, path_BN, verified, limits)
        passes += 1
        if on_round is not None:
            for stream in active:
                on_round(stream.sequence, tuple(stream.known[-stream.accept_lens[-1] :]))
        active = [stream for stream in active if stream.reason is None]
    return Decoding(tuple(stream.decoded() for stream in streams), passes, clock.seconds)


class Clock:
    """Wall time by stage."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        start = perf_counter()
        yield
        self.seconds[stage] += perf_counter() - start


def prefill(target: Target, drafter: Drafter | None, streams: list[Stream]) -> LatentCache:
    """Read every prompt but its last token into a new cache, and open the drafter's sessions."""
    cache = target.new_cache(len(streams))
    for b, stream in enumerate(streams):
        stream.session = drafter.session() if drafter else None
        stream.new_hidden_YTD = target.read(cache, b, np.array(stream.known[:-1], np.int32))
    return cache


def draft(
    streams: list[Stream], drafter: Drafter | None, budget: int, vocab_size: int, limits: Limits
) -> tuple[Float, Index]:
    """Return (top_logprob_BLK, top_token_BLK) of the drafter's marginals; no rows if nothing is to be drafted."""
    B = len(streams)
    if drafter is None or budget == 0:
        return np.zeros((B, 0, 0), np.float32), np.zeros((B, 0, 0), np.int32)
    rows, tokens = [], []
    for stream in streams:
        logprob_LV = propose(stream, drafter, vocab_size)
        token_LK, row_LK = best_tokens(logprob_LV, budget)
        row_LK[limits.context - len(stream.known) :] = -np.inf  # depth d has position len(known) - 1 + d
        rows.append(row_LK)
        tokens.append(token_LK)
    return np.stack(rows), np.stack(tokens)


def propose(stream: Stream, drafter: Drafter, vocab_size: int) -> Float:
    """Ask a sequence's session for its marginals, and check them."""
    assert stream.session is not None
    assert stream.new_hidden_YTD is not None
    name = f"drafter {type(drafter).__name__}, sequence {stream.sequence}"
    logprob_LV = floats(name, stream.session.propose(np.array(stream.known, np.int32), stream.new_hidden_YTD))
    needs = drafter.draft_len, vocab_size
    if logprob_LV.shape != needs:
        raise ValueError(f"{name}: got shape {logprob_LV.shape}, needs (L, V) = {needs}")
    for depth, token in np.argwhere(np.isnan(logprob_LV) | (logprob_LV == np.inf)):
        raise ValueError(
            f"{name}: got {logprob_LV[depth, token]} at depth {depth + 1}, token {token}; "
            "needs finite log-probs, or -inf for no candidate"
        )
    return logprob_LV


def trimmed(trees: TreeBatch, root_B: Index) -> TreeBatch:
    """Drop the slots that no tree of the batch uses; refuse trees of another root or with wrong depths."""
    check_parents(trees.parent_BN, trees.node_count_B)
    N = int(trees.node_count_B.max())
    trees = TreeBatch._make([*(array_BN[:, :N] for array_BN in trees[:-1]), trees.node_count_B])
    for b in np.flatnonzero(trees.token_BN[:, ROOT] != root_B):
        got, needed = trees.token_BN[b, ROOT], root_B[b]
        raise TreeError(f"token_BN: the builder's root is {got} at batch row {b}, needs {needed}")
    above_BN = np.take_along_axis(trees.depth_BN, np.maximum(trees.parent_BN, ROOT), axis=1) + 1
    above_BN[:, ROOT] = 0
    for b, i in np.argwhere(real_slots(trees.node_count_B, N) & (trees.depth_BN != above_BN)):
        raise TreeError(f"depth_BN: got {trees.depth_BN[b, i]} at batch row {b}, slot {i}; needs {above_BN[b, i]}")
    return trees


def next_tokens(
    streams: list[Stream], trees: TreeBatch, logit_BNV: Float, prefix_len_B: Index, sampler: Sampler
) -> Index:
    """Return the target's token after every real slot, and NO_NODE in padded ones."""
    real_BN = real_slots(trees.node_count_B, trees.token_BN.shape[1])
    for b, i in np.argwhere(real_BN & np.isnan(logit_BNV).any(axis=2)):
        raise ValueError(f"target: got NaN among the logits of sequence {streams[b].sequence}, slot {i}")
    position_BN = prefix_len_B[:, None] + trees.depth_BN + 1  # of the token to choose
    token_BN = np.full(real_BN.shape, NO_NODE, np.int32)
    chosen_T = integers("sampler", sampler(logit_BNV[real_BN], position_BN[real_BN]))
    V = logit_BNV.shape[2]
    if chosen_T.shape != (real_BN.sum(),) or (chosen_T < 0).any() or (chosen_T >= V).any():
        raise ValueError(f"sampler: got {chosen_T}, needs a token from 0 to {V - 1} for each of {real_BN.sum()} rows")
    token_BN[real_BN] = chosen_T
    return token_BN


def accepted_paths(trees: TreeBatch, target_token_BN: Index) -> Index:
    """Walk each tree along the target's tokens; return the slots from the root down, padded with -1."""
    links = ops.retrieve.on("numba")(trees.parent_BN, trees.node_count_B)
    return ops.accept_greedy.on("numba")(trees.token_BN, *links, trees.node_count_B, target_token_BN).path_BN


def commit(
    streams: list[Stream], cache: LatentCache, token_BN: Index, path_BN: Index, verified: Forward, limits: Limits
) -> None:
    """Give the streams the tokens after their paths' slots; the cache keeps these slots, of unfinished streams."""
    kept_B = np.zeros(len(streams), np.int32)
    for b, (stream, token_N, path_N) in enumerate(zip(streams, token_BN, path_BN, strict=True)):
        kept_B[b] = stream.take(token_N[path_N[path_N != NO_NODE]], limits)
        stream.new_hidden_YTD = verified.hidden_YBND[:, b, path_N[: kept_B[b]]]
    cache.commit(path_BN, kept_B)
    going = [b for b, stream in enumerate(streams) if stream.reason is None]
    if len(going) < len(streams):
        cache.keep(going)
