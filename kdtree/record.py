"""Record a dense trace: a target writes, and a drafter is asked at every position of what it wrote."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .reference.arrays import Float, Index, count, integers, rectangular
from .reference.errors import ShapeError
from .reference.top_k import best_tokens
from .sampling import Sampler, greedy
from .trace import Trace

__all__ = [
    "LogitsOf",
    "Recorded",
    "check_limits",
    "check_tokens",
    "log_probs",
    "next_token",
    "open_prompts",
    "record",
    "trace_of",
]

LogitsOf: TypeAlias = Callable[[Index], ArrayLike]
"""A drafter or a target: logits of the tokens after a prefix, which is int32 (T,)."""

LETTERS = {"target": "V", "drafter": "LV"}
NORMED = 1e-5  # how far from 0 the log of the sum of float32 probabilities may be by rounding alone


class Recorded(NamedTuple):
    """One sequence of a trace."""

    prompt_P: Index
    continuation_T: Index
    topk_ids_TLK: Index
    topk_log_probs_TLK: Float


def record(
    drafter: LogitsOf,
    target: LogitsOf,
    prompts: Sequence[ArrayLike],
    *,
    anchors: int,
    K: int = 64,
    sampler: Sampler = greedy,
    stop_tokens: Iterable[int] = (),
    metadata: Mapping[str, str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Trace:
    """Let the target continue every prompt, ask the drafter at every token that it wrote, and return the trace.

    Both are functions of a prefix: int32 (T,), the prompt and what was written so far. They may return numpy arrays or
    what becomes one, in float32, float64 or float16. For models of this project see `kdtree.record_models`.

    Parameters
    ----------
    drafter : callable
        prefix -> logits or log-probs (L, V), nats; row d, from 0, is about the token d + 1 places behind the prefix,
        whose last token is the anchor. -inf is no candidate.
    target : callable
        prefix -> logits (V,) of the next token.
    prompts : sequence of token sequences, each of 1 or more tokens
    anchors : int
        T, tokens to write behind each prompt. A replay starts rounds at the first T - L of them.
    K : int
        Ranks to record of every row, V at most; as many as the largest budget to replay are always enough.
    sampler : Sampler
        `greedy`, or `Seeded(temperature, seed)`; it gets the target's row and the absolute position of the token.
    stop_tokens : iterable of int
        A sequence ends right behind the first of them: it has fewer anchors, of which a replay uses all but L.
    metadata : mapping, optional
        Strings for the trace, beside `vocab_size`.
    progress : callable, optional
        Called as progress(anchors done, anchors) after each anchor.

    Returns
    -------
    Trace
        Its log-probs are float32: a log-softmax over the whole vocabulary, then the K best, equal ones by the lower
        token. A row whose probabilities sum to 1 already, up to 1e-5, keeps its bits. V and L are those of the first
        answers.

    Raises
    ------
    ValueError
        A prompt is empty or has a token that is none, an argument is out of range, or a callable fails or returns a
        wrong or another shape, NaN, +inf, or no floats. The message names the callable, the sequence and the anchor.

    Cost
    ----
    S T calls of each callable, on prefixes that grow by one token; O(S T L V) for the rows.

    Invariants
    ----------
    - row d at anchor t is about continuation[t + d] (test_row_d_at_anchor_t_is_about_the_token_d_behind_it)
    - the trace has the bits that live decoding sees (test_a_replay_of_a_recorded_trace_has_the_rounds_of_a_live_run)
    - a wrong answer is refused by name (test_a_wrong_answer_is_refused_by_callable_sequence_and_anchor)

    Examples
    --------
    >>> def next_is(token, V=5):
    ...     return np.where(np.arange(V) == token % V, 9.0, 0.0)
    >>> counting = record(
    ...     lambda prefix: [next_is(prefix[-1] + 1), next_is(prefix[-1] + 2)],
    ...     lambda prefix: next_is(prefix[-1] + 1),
    ...     [[3]],
    ...     anchors=4,
    ...     K=2,
    ... )
    >>> counting.continuation
    array([[4, 0, 1, 2]], dtype=int32)
    >>> counting.topk_ids[0, 1]
    array([[1, 0],
           [2, 0]], dtype=int32)
    """
    anchors, K, stops = check_limits(anchors, K, stop_tokens)
    writer = Writer(target, drafter, sampler)
    recorded = []
    for s, prompt_P in enumerate(open_prompts(prompts)):
        rows = []
        known = prompt_P.tolist()
        for t in range(anchors):
            where = f"sequence {s}, anchor {t}"
            known.append(writer.next_token(known, where))
            rows.append(best_tokens(writer.log_probs(known, where), K))
            if progress is not None:
                progress(s * anchors + t + 1, len(prompts) * anchors)
            if known[-1] in stops:
                break
        written_T = np.array(known[len(prompt_P) :], np.int32)
        recorded.append(Recorded(prompt_P, written_T, *map(np.array, zip(*rows, strict=True))))
    return trace_of(recorded, writer.vocab_size, metadata)


class Writer:
    """A target and a drafter whose answers are checked: V and L are those of the first."""

    def __init__(self, target: LogitsOf, drafter: LogitsOf, sampler: Sampler) -> None:
        self._ask = {"target": target, "drafter": drafter}
        self._sampler = sampler
        self._shapes: dict[str, tuple[int, ...]] = {}

    @property
    def vocab_size(self) -> int:
        """V, once the target has answered."""
        return self._shapes["target"][0]

    def next_token(self, known: Sequence[int], where: str) -> int:
        """Return the target's token behind the known ones."""
        logit_V = self.answer("target", known, where)
        check_tokens(known, self.vocab_size, where)
        return next_token(self._sampler, logit_V, len(known), where)

    def log_probs(self, known: Sequence[int], where: str) -> Float:
        """Return the drafter's log-probs (L, V), float32, at the last known token."""
        row_LV = self.answer("drafter", known, where)
        if row_LV.shape[1] != self.vocab_size:
            raise ShapeError(f"drafter, {where}: got V = {row_LV.shape[1]}, needs the target's, {self.vocab_size}")
        return log_probs(row_LV)

    def answer(self, name: str, known: Sequence[int], where: str) -> Float:
        """Ask a callable; refuse an answer of another shape than the first, without floats, or with NaN or +inf."""
        where = f"{name}, {where}"
        try:
            answer = np.asarray(self._ask[name](np.array(known, np.int32)))
        except (TypeError, ValueError, RuntimeError, LookupError) as error:
            raise ValueError(f"{where}: {error}") from error
        if answer.dtype not in (np.float16, np.float32, np.float64):
            raise ShapeError(f"{where}: got dtype {answer.dtype}, needs float32, float64 or float16")
        if answer.ndim != len(LETTERS[name]) or 0 in answer.shape:
            raise ShapeError(
                f"{where}: got shape {answer.shape}, needs ({', '.join(LETTERS[name])}), 1 or more of each"
            )
        first = self._shapes.setdefault(name, answer.shape)
        if answer.shape != first:
            raise ShapeError(f"{where}: got shape {answer.shape}, needs that of its first answer, {first}")
        wide = name == "target" and answer.dtype == np.float64  # a trace holds the drafter's rows in float32
        with np.errstate(over="ignore"):
            answer = np.asarray(answer, np.float64 if wide else np.float32)
        for place in np.argwhere(np.isnan(answer) | (answer == np.inf)):
            got = answer[tuple(place)]
            raise ValueError(f"{where}: got {got} at {place.tolist()}, needs finite numbers, or -inf for no candidate")
        return answer


def check_limits(anchors: int, K: int, stop_tokens: Iterable[int]) -> tuple[int, int, frozenset[int]]:
    """Return the three as `record` uses them, or raise ValueError."""
    anchors, K = count("anchors", anchors), count("K", K)
    if not anchors or not K:
        raise ValueError(f"anchors, K: got {anchors} and {K}, needs 1 or more of each")
    return anchors, K, frozenset(count("stop_tokens", token) for token in stop_tokens)


def open_prompts(prompts: Sequence[ArrayLike]) -> list[Index]:
    """Return the prompts as int32, or raise ValueError."""
    if len(prompts) == 0:
        raise ValueError("prompts: got none, needs one or more")
    for s, prompt in enumerate(prompts):
        if len(shape := rectangular(f"prompts[{s}]", prompt).shape) != 1 or shape[0] == 0:
            raise ValueError(f"prompts: got shape {shape} at sequence {s}, needs 1 or more tokens")
    opened = [integers(f"prompts[{s}]", prompt) for s, prompt in enumerate(prompts)]
    for s, prompt_P in enumerate(opened):
        if prompt_P.min() < 0:
            raise ValueError(f"prompts: got token {prompt_P.min()} in sequence {s}, needs 0 or more")
    return opened


def check_tokens(known: Sequence[int], vocab_size: int, where: str) -> None:
    """Raise ValueError unless the vocabulary has every token."""
    if max(known) >= vocab_size:
        raise ValueError(f"prompts, {where}: got token {max(known)}, needs 0 to {vocab_size - 1}")


def next_token(sampler: Sampler, logit_V: Float, position: int, where: str) -> int:
    """Return the sampler's token for a position, or raise ValueError if there is none."""
    if (logit_V == -np.inf).all():
        raise ValueError(f"target, {where}: got -inf for every token, needs one that can be written")
    token_T = integers(f"sampler, {where}", sampler(logit_V[None], np.array([position], np.int32)))
    V = len(logit_V)
    if token_T.shape != (1,) or not 0 <= token_T[0] < V:
        raise ValueError(f"sampler, {where}: got {token_T}, needs one token from 0 to {V - 1}")
    return int(token_T[0])


def log_probs(logit_LV: Float) -> Float:
    """Return the float32 log-softmax of each row; a row that is one already, or has no candidate, keeps its bits.

    Examples
    --------
    >>> log_probs(np.array([[0.0, 0.0], [-np.inf, -np.inf], [-np.inf, 3.0]]))
    array([[-0.6931472, -0.6931472],
           [      -inf,       -inf],
           [      -inf,  0.       ]], dtype=float32)
    """
    logit_LV = np.asarray(logit_LV, np.float32)
    peak_L1 = logit_LV.max(axis=1, keepdims=True)
    empty_L1 = peak_L1 == -np.inf
    above_LV = logit_LV - np.where(empty_L1, 0, peak_L1)
    with np.errstate(divide="ignore", invalid="ignore"):
        total_L1 = np.log(np.exp(above_LV).sum(axis=1, keepdims=True))
        normed_L1 = np.abs(peak_L1 + total_L1) <= NORMED
        return np.where(empty_L1 | normed_L1, logit_LV, above_LV - total_L1)


def trace_of(recorded: Sequence[Recorded], vocab_size: int, metadata: Mapping[str, str] | None = None) -> Trace:
    """Return the validated trace of some sequences, the shorter ones padded with zeros."""
    prompts, continuations, ids, rows = zip(*recorded, strict=True)
    return Trace.from_arrays(
        prompt=padded(prompts),
        continuation=padded(continuations),
        topk_ids=padded(ids),
        topk_log_probs=padded(rows),
        prompt_len=np.array([len(prompt_P) for prompt_P in prompts]),
        anchor_count=np.array([len(continuation_T) for continuation_T in continuations]),
        metadata={**(metadata or {}), "vocab_size": str(vocab_size)},
    )


def padded(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack arrays whose first sizes differ."""
    stacked = np.zeros((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), arrays[0].dtype)
    for row, array in zip(stacked, arrays, strict=True):
        row[: len(array)] = array
    return stacked
