"""Dense traces: what a drafter proposed at every position of what a target wrote."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import kdtr
from .convert import read_tensors
from .kdtr import KdtrError
from .reference.arrays import Float, Index, floats, integers
from .reference.errors import ShapeError

__all__ = ["Trace", "TraceError"]

SHIPPED = Path(str(files("kdtree"))) / "data" / "traces"
SCHEMA = "kdtree.trace/1"
ROUNDING = 1e-3  # how far above 1 the float32 probabilities of a row may sum


class TraceError(ValueError):
    """A trace breaks its schema (docs/trace.md)."""


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """S sequences; at each of T anchors of a continuation, the drafter's K best tokens for the next L positions.

    At anchor t the root is continuation[t], and row d of its marginals is about continuation[t + d]. A walk reads the
    target only on prefixes of its own continuation, so any tree can be replayed exactly and without a model. Make one
    with `from_arrays` or `load`; both check it.
    """

    prompt: Index  #: (S, P) tokens before the continuation
    continuation: Index  #: (S, C) what the target wrote, greedily or by seeded sampling; C >= T
    topk_ids: Index  #: (S, T, L, K) the drafter's K best tokens, best first
    topk_log_probs: Float  #: (S, T, L, K) nats, float32 or float64, of a log-softmax over the whole vocabulary
    prompt_len: Index  #: (S,) real tokens of each prompt, <= P
    anchor_count: Index  #: (S,) recorded anchors of each continuation, <= T
    metadata: Mapping[str, str] = field(default_factory=dict)  #: "vocab_size" and "tokens" are read; all is kept

    @classmethod
    def from_arrays(
        cls,
        *,
        prompt: ArrayLike,
        continuation: ArrayLike,
        topk_ids: ArrayLike,
        topk_log_probs: ArrayLike,
        prompt_len: ArrayLike | None = None,
        anchor_count: ArrayLike | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> "Trace":
        """Make a trace from arrays of any integer type, and validate it.

        Sequences of unequal length are padded with anything; `prompt_len` and `anchor_count` say what is real, all of
        it if they are not given.

        Raises
        ------
        TraceError
            A shape, a dtype or a value breaks the schema; the message names sequence, anchor, depth and rank.
        """
        try:
            ids = integers("topk_ids", topk_ids)
            prompts = integers("prompt", prompt)
            if ids.ndim != 4 or prompts.ndim != 2:
                raise TraceError(
                    f"topk_ids, prompt: got shapes {ids.shape} and {prompts.shape}, needs (S, T, L, K) and (S, P)"
                )
            S, T, P = ids.shape[0], ids.shape[1], prompts.shape[1]
            trace = cls(
                prompt=prompts,
                continuation=integers("continuation", continuation),
                topk_ids=ids,
                topk_log_probs=floats("topk_log_probs", topk_log_probs),
                prompt_len=integers("prompt_len", np.full(S, P) if prompt_len is None else prompt_len),
                anchor_count=integers("anchor_count", np.full(S, T) if anchor_count is None else anchor_count),
                metadata=dict(metadata or {}),
            )
        except (ShapeError, ValueError) as error:
            raise TraceError(str(error)) from None
        trace.validate()
        return trace

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Trace":
        """Read a trace from .kdtr (mapped, not copied) or .npz, and validate it.

        Raises
        ------
        TraceError
            An array is missing, unknown or breaks the schema, or the file is neither .kdtr nor .npz.
        KdtrError
            The .kdtr file is malformed.
        OSError
            The file cannot be read.
        """
        path = Path(path)
        metadata: Mapping[str, str] = {}
        if path.suffix == ".npz":
            try:
                arrays, _ = read_tensors(path)
            except KdtrError as error:
                raise TraceError(str(error)) from None
        elif path.suffix == ".kdtr":
            arrays, metadata = kdtr.load(path)
        else:
            raise TraceError(f"{path}: got suffix {path.suffix!r}, needs .kdtr or .npz")
        if metadata.get("schema", SCHEMA) != SCHEMA:
            raise TraceError(f"{path}: got schema {metadata['schema']!r}, needs {SCHEMA!r}")
        names = [field.name for field in fields(cls) if field.name != "metadata"]
        missing = [name for name in names[:4] if name not in arrays]
        unknown = [name for name in arrays if name not in names]
        if missing or unknown:
            raise TraceError(f"{path}: missing arrays {missing}, unknown arrays {unknown}; needs {names}")
        try:
            return cls.from_arrays(**arrays, metadata=metadata)
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from None

    @classmethod
    def shipped(cls, name: str = "tiny_t05") -> "Trace":
        """Load a trace that comes with the project (data/README.md)."""
        if name not in cls.shipped_names():
            raise TraceError(f"name: got {name!r}, needs one of {', '.join(cls.shipped_names())}")
        return cls.load(SHIPPED / f"{name}.kdtr")

    @staticmethod
    def shipped_names() -> list[str]:
        """Return the names of the traces that come with the project."""
        return sorted(path.stem for path in SHIPPED.glob("*.kdtr"))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trace as .kdtr, all of it or nothing; tokens that all fit a byte take one byte each."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "metadata"}
        for name in ("prompt", "continuation", "topk_ids"):
            ids = arrays[name]
            if ids.min(initial=0) >= 0 and ids.max(initial=0) < 256:
                arrays[name] = ids.astype(np.uint8)
        kdtr.save(path, arrays, {**self.metadata, "schema": SCHEMA})

    @property
    def draft_len(self) -> int:
        """L: positions that the drafter looks ahead."""
        return int(self.topk_ids.shape[2])

    @property
    def K(self) -> int:
        """Recorded tokens of each row."""
        return int(self.topk_ids.shape[3])

    @property
    def vocab_size(self) -> int | None:
        """Size of the vocabulary, if the metadata states it."""
        stated = self.metadata.get("vocab_size")
        return None if stated is None else int(stated)

    def label(self, token: int) -> str:
        """Return how to show a token: its byte where the metadata says tokens = bytes, its number otherwise."""
        if self.metadata.get("tokens") == "bytes" and token < 256:
            return chr(token)
        return str(token)

    def __repr__(self) -> str:
        S, T, L, K = self.topk_ids.shape
        return f"<Trace of {S} sequences x {T} anchors, L = {L}, K = {K}>"

    def validate(self) -> None:
        """Raise TraceError at the first thing that breaks the schema; O(size of the trace)."""
        self._check_shapes()
        for s in range(len(self.topk_ids)):
            anchors, prompt_len = self.anchor_count[s], self.prompt_len[s]
            self._check_ids("prompt", self.prompt[s, :prompt_len], s)
            self._check_ids("continuation", self.continuation[s, :anchors], s)
            self._check_ids("topk_ids", self.topk_ids[s, :anchors], s)
            self._check_rows(s)

    def _check_shapes(self) -> None:
        S, T, L, K = self.topk_ids.shape
        C = self.continuation.shape[1] if self.continuation.ndim == 2 else 0
        needed = {
            "continuation": (S, max(C, T)),
            "topk_log_probs": (S, T, L, K),
            "prompt": (S, self.prompt.shape[-1]),
            "prompt_len": (S,),
            "anchor_count": (S,),
        }
        for name, shape in needed.items():
            if getattr(self, name).shape != shape:
                raise TraceError(
                    f"{name}: got shape {getattr(self, name).shape}, needs {shape} for S, T, L, K = {S, T, L, K}"
                )
        if L == 0 or K == 0:
            raise TraceError(f"topk_ids: got L = {L}, K = {K}, needs 1 or more of each")
        for name, most in (("prompt_len", self.prompt.shape[1]), ("anchor_count", T)):
            for s in np.flatnonzero((getattr(self, name) < 0) | (getattr(self, name) > most)):
                raise TraceError(f"{name}: got {getattr(self, name)[s]} at sequence {s}, needs 0 to {most}")
        for key, value in self.metadata.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TraceError(f"metadata: got {key!r}: {value!r}, needs strings")
        stated = self.metadata.get("vocab_size", "1")
        if not stated.isdecimal() or len(stated) > 10 or int(stated) < 1:
            raise TraceError(f"metadata vocab_size: got {stated[:20]!r}, needs a number from 1 to 9999999999")

    def _check_ids(self, name: str, ids: Index, s: int) -> None:
        limit = self.vocab_size or np.iinfo(np.int32).max + 1
        for place in np.argwhere((ids < 0) | (ids >= limit)):
            at = ", ".join(map(str, place))
            raise TraceError(f"{name}: got token {ids[tuple(place)]} at sequence {s}, [{at}]; needs 0 to {limit - 1}")

    def _check_rows(self, s: int) -> None:
        lp_TLK = self.topk_log_probs[s, : self.anchor_count[s]]
        unlisted = -1 - np.arange(self.K)  # what stands behind -inf repeats nothing
        ids_TLK = np.where(lp_TLK > -np.inf, self.topk_ids[s, : self.anchor_count[s]], unlisted)
        with np.errstate(invalid="ignore"):
            wrongs: dict[str, tuple[str, NDArray[Any], str]] = {
                "no log-prob": ("topk_log_probs", ~(lp_TLK <= ROUNDING), "finite values of 0 or less, or -inf"),
                "more than the rank before": (
                    "topk_log_probs",
                    np.pad(lp_TLK[..., 1:] > lp_TLK[..., :-1], ((0, 0), (0, 0), (1, 0))),
                    "rows sorted, largest first",
                ),
                "again in one row": ("topk_ids", repeats(ids_TLK), "distinct tokens in a row"),
                "with probabilities that sum above 1": (
                    "topk_log_probs",
                    np.exp(lp_TLK.astype(np.float64)).sum(-1) > 1 + ROUNDING,
                    "a log-softmax over the vocabulary",
                ),
            }
        for what, (name, wrong, needs) in wrongs.items():
            for t, d, *rank in np.argwhere(wrong):
                value = getattr(self, name)[s, t, d, rank[0]] if rank else "a row"
                place = f"sequence {s}, anchor {t}, depth {d + 1}" + "".join(f", rank {r}" for r in rank)
                raise TraceError(f"{name}: got {value} at {place}, {what}; needs {needs}")


def repeats(ids_TLK: Index) -> NDArray[np.bool_]:
    """Mark every entry whose row has its token at a lower rank."""
    order = np.argsort(ids_TLK, axis=-1, kind="stable")
    ordered = np.take_along_axis(ids_TLK, order, axis=-1)
    marked = np.zeros(ids_TLK.shape, np.bool_)
    again = np.pad(ordered[..., 1:] == ordered[..., :-1], ((0, 0), (0, 0), (1, 0)))
    np.put_along_axis(marked, order, again, axis=-1)
    return marked
