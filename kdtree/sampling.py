"""Samplers: the one token that a target writes at a position, a function of its logits and the position alone.

Such a target is deterministic, so speculative decoding gives its very tokens, whatever the drafter proposes.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from numbers import Integral
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from . import ops
from .reference.arrays import Float, Index

__all__ = ["Sampler", "Seeded", "greedy", "gumbel_row"]


COLDEST = 1e-6  # below it logits / T overflow, and nothing but the largest logit is ever drawn


class Sampler(Protocol):
    """What decoding asks for tokens."""

    def __call__(self, logit_TV: Float, position_T: Index, /) -> Index:
        """Return the token of each row, int32 (T,), that goes to the row's absolute position."""


def greedy(logit_TV: Float, position_T: Index) -> Index:
    """Return the token of the largest logit, the lowest of equal ones; positions do not matter.

    Examples
    --------
    >>> greedy(np.array([[1.0, 3.0, 3.0]]), np.array([7]))
    array([1], dtype=int32)
    """
    return ops.argmax(logit_TV)


@dataclass(frozen=True)
class Seeded:
    """Sample softmax(logits / T) with noise that is fixed once for all by a seed.

        token = argmax(logits / T + G[position]),  G[p] = gumbel_row(seed, p, V)

    The lowest of equal tokens wins. Sequences share the table, so equal prompts have equal continuations.

    Parameters
    ----------
    temperature : float
        T, above 0.
    seed : int
        0 <= seed < 2**64.

    Raises
    ------
    ValueError
        The temperature is not positive and finite (0 would be `greedy`), or the seed is out of range.

    Invariants
    ----------
    - over positions it samples the softmax (test_seeded_tokens_are_drawn_from_the_softmax_at_the_temperature)
    - speculative decoding gives the tokens of plain decoding
      (test_speculative_tokens_are_those_of_plain_decoding_bit_for_bit)

    Examples
    --------
    >>> Seeded(temperature=1.0, seed=0)(np.zeros((4, 9)), np.array([0, 1, 2, 3]))
    array([7, 6, 8, 8], dtype=int32)
    """

    temperature: float
    seed: int

    def __post_init__(self) -> None:
        if not COLDEST <= self.temperature < inf:
            needs = f"{COLDEST} or more, and finite; for T = 0 take kdtree.greedy"
            raise ValueError(f"temperature: got {self.temperature}, needs {needs}")
        if not isinstance(self.seed, Integral) or not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed: got {self.seed!r}, needs a whole number from 0 to 2**64 - 1")

    def __call__(self, logit_TV: Float, position_T: Index, /) -> Index:
        """Return the token of each row."""
        V = logit_TV.shape[1]
        positions, row_T = np.unique(position_T, return_inverse=True)
        noise = np.array([gumbel_row(self.seed, position, V) for position in positions.tolist()]).reshape(-1, V)
        return ops.argmax(np.asarray(logit_TV, np.float64) / self.temperature + noise[row_T])


@lru_cache(maxsize=64)  # siblings of a tree and sequences of a batch ask for the same rows
def gumbel_row(seed: int, position: int, vocab_size: int) -> NDArray[np.float64]:
    """Return the standard Gumbel noise of a position, read-only.

        G = -log(-log u),  u = (top 52 bits of a raw Philox word + 1/2) / 2**52,  key (seed, position)

    numpy guarantees the raw words for ever, which it does not for the floats of a Generator; the logarithm may differ
    in its last bit between machines. A larger vocabulary extends the row.

    Parameters
    ----------
    seed, position : int
        0 to 2**64 - 1.
    vocab_size : int

    Returns
    -------
    noise_V : float64, shape (V,), finite

    Invariants
    ----------
    - the words are those of the published Philox4x64-10 (test_the_noise_comes_from_the_published_words)

    Examples
    --------
    >>> gumbel_row(0, 5, 3).round(6)
    array([ 0.631605,  0.550027, -0.191078])
    """
    raw_V = np.random.Philox(key=np.array([seed, position], np.uint64)).random_raw(vocab_size)
    uniform_V = ((raw_V >> np.uint64(12)) + 0.5) * 2.0**-52  # inside (0, 1), ends excluded
    noise_V = np.asarray(-np.log(-np.log(uniform_V)))
    noise_V.setflags(write=False)
    return noise_V
