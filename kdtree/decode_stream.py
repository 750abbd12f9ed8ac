"""A sequence while it is decoded, and what ends it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from .decode_result import Decoded, Reason
from .drafters import DraftSession
from .reference.arrays import Float, Index, integers, rectangular

__all__ = ["Limits", "Stream", "open_streams"]


@dataclass(frozen=True)
class Limits:
    """What ends a sequence."""

    max_new_tokens: int
    stop_tokens: frozenset[int]
    context: int


@dataclass
class Stream:
    """A sequence while it grows."""

    sequence: int  #: its place among the prompts
    known: list[int]  #: the prompt, then the new tokens
    prompt_len: int
    reason: Reason | None = None
    accept_lens: list[int] = field(default_factory=list)
    session: DraftSession | None = None
    new_hidden_YTD: Float | None = None  #: of the tokens committed to the cache since the last proposal

    def check_end(self, limits: Limits) -> None:
        """Set the reason if the last token ends the sequence: the first of stop, length and context that does."""
        new = len(self.known) - self.prompt_len
        if new and self.known[-1] in limits.stop_tokens:
            self.reason = "stop"
        elif new == limits.max_new_tokens:
            self.reason = "length"
        elif len(self.known) == limits.context:
            self.reason = "context"

    def take(self, tokens: Index, limits: Limits) -> int:
        """Append the tokens of a round up to one that ends the sequence, and return their number."""
        before = len(self.known)
        for token in tokens.tolist():
            self.known.append(token)
            self.check_end(limits)
            if self.reason is not None:
                break
        self.accept_lens.append(len(self.known) - before)
        return len(self.known) - before

    def decoded(self) -> Decoded:
        """Return the finished sequence."""
        assert self.reason is not None
        return Decoded(tuple(self.known[self.prompt_len :]), self.reason, tuple(self.accept_lens))


def open_streams(prompts: Sequence[ArrayLike], vocab_size: int, limits: Limits) -> list[Stream]:
    """Check the prompts and return a stream for each; some may have ended already."""
    if len(prompts) == 0:
        raise ValueError("prompts: got none, needs one or more")
    streams = []
    for s, prompt in enumerate(prompts):
        shape = rectangular(f"prompts[{s}]", prompt).shape
        if len(shape) != 1 or not 1 <= shape[0] <= limits.context:
            raise ValueError(f"prompts: got shape {shape} at sequence {s}, needs 1 to {limits.context} tokens")
        known = integers(f"prompts[{s}]", prompt).tolist()
        for token in known:
            if not 0 <= token < vocab_size:
                raise ValueError(f"prompts: got token {token} in sequence {s}, needs 0 to {vocab_size - 1}")
        streams.append(Stream(s, known, len(known)))
        streams[-1].check_end(limits)
    return streams
