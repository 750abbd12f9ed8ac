"""What decoding returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Literal, TypeAlias

__all__ = ["Decoded", "Decoding", "Reason"]

Reason: TypeAlias = Literal["stop", "length", "context"]


@dataclass(frozen=True)
class Decoded:
    """One sequence."""

    tokens: tuple[int, ...]  #: the new ones; a stop token is the last of them
    reason: Reason  #: why it ended: a stop token, max_new_tokens, or max_position_embeddings
    accept_lens: tuple[int, ...]  #: tokens that each round committed; their sum is len(tokens)


@dataclass(frozen=True)
class Decoding:
    """All sequences of a call, in the order of the prompts, and what they took together.

    Examples
    --------
    >>> done = Decoded((5, 6, 8, 1), "stop", (3, 1)), Decoded((7, 7), "length", (2,))
    >>> Decoding(done, target_passes=2, seconds={}).tau
    2.0
    """

    sequences: tuple[Decoded, ...]
    target_passes: int  #: verifications of the batch; the prompts' prefill is not among them
    seconds: Mapping[str, float]  #: wall time by stage: prefill, draft, build, verify, accept, commit

    @property
    def tau(self) -> float:
        """Tokens a round, the mean over all rounds; NaN without rounds.

        A sequence's last round counts what was kept of it, so tau is at most that of a replay.
        """
        rounds = sum(len(sequence.accept_lens) for sequence in self.sequences)
        return sum(len(sequence.tokens) for sequence in self.sequences) / rounds if rounds else nan
