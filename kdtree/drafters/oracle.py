"""A drafter that knows what the target will write, and errs as often as it is told to."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from kdtree.reference.arrays import Float, Index, count

__all__ = ["Oracle"]


class Oracle:
    """Propose the target's own continuation, wrong with a given probability at each depth.

    The right token has rank 0 with probability 1 - error_rate; otherwise its rank is r = 1, 2, ... with probability
    2**-r, so that siblings catch what the first rank misses. Ranks have the probabilities

        q(0) = 1 - e,  q(r) = e / 2**r,  e = error_rate clipped to 0.01..0.5

    which are the true ones while nothing is clipped. Errors are drawn per (seed, absolute position).

    Parameters
    ----------
    prompts : sequence of token sequences
    continuations : sequence of token sequences
        What the target writes after each prompt, as plain decoding gave it. Past its end nothing is proposed.
    draft_len : int
        L.
    vocab_size : int
        V.
    error_rate : float
        0 to 1. At 0 a round accepts all L tokens.
    seed : int
        0 to 2**31 - 1.

    Raises
    ------
    ValueError
        The error rate is not from 0 to 1, a count is negative, or prompts and continuations differ in number.

    Invariants
    ----------
    - without errors nothing is refused (test_an_oracle_without_errors_takes_the_fewest_passes)
    - it errs at its rate (test_an_oracle_errs_at_its_rate)

    Examples
    --------
    >>> oracle = Oracle([[1, 2]], [[5, 6, 7]], draft_len=2, vocab_size=9)
    >>> oracle.session().propose(np.array([1, 2]), np.zeros((0, 0, 0))).argmax(axis=1)
    array([5, 6])
    """

    def __init__(
        self,
        prompts: Sequence[ArrayLike],
        continuations: Sequence[ArrayLike],
        *,
        draft_len: int,
        vocab_size: int,
        error_rate: float = 0.0,
        seed: int = 0,
    ) -> None:
        if not 0 <= error_rate <= 1:
            raise ValueError(f"error_rate: got {error_rate}, needs 0 to 1")
        if len(prompts) != len(continuations):
            raise ValueError(f"continuations: got {len(continuations)}, needs one for each of {len(prompts)} prompts")
        self.draft_len, self.error_rate, self.seed = count("draft_len", draft_len), error_rate, count("seed", seed)
        self._continuation_of: dict[tuple[int, ...], list[int]] = {
            tuple(np.asarray(prompt).tolist()): np.asarray(continuation).tolist()
            for prompt, continuation in zip(prompts, continuations, strict=True)
        }
        error = min(max(error_rate, 0.01), 0.5)
        self.logprob_V = np.log(error) - np.log(2) * np.arange(vocab_size, dtype=np.float32)
        self.logprob_V[:1] = np.log1p(-error)

    def session(self) -> "OracleSession":
        """Return a session that learns from its first call which prompt it is at work on."""
        return OracleSession(self)

    def continuation(self, token_T: Index) -> list[int]:
        """Return what follows a prompt, or raise ValueError."""
        try:
            return self._continuation_of[tuple(token_T.tolist())]
        except KeyError:
            raise ValueError(f"token_T: got a prompt of {len(token_T)} tokens that the oracle was not given") from None

    def right_rank(self, position: int) -> int:
        """Return the rank that the right token gets at an absolute position."""
        rng = np.random.default_rng([self.seed, position])
        if rng.random() < 1 - self.error_rate:
            return 0
        return min(int(rng.geometric(0.5)), len(self.logprob_V) - 1)


class OracleSession:
    """An oracle at work on one sequence."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.prompt_len = 0
        self.continuation: list[int] = []

    def propose(self, token_T: Index, new_hidden_YTD: Float) -> Float:
        """Return a row a depth: the ranks' log-probs, turned so that the right token has its rank."""
        oracle = self.oracle
        if self.prompt_len == 0:
            self.prompt_len, self.continuation = len(token_T), oracle.continuation(token_T)
        row_LV = np.full((oracle.draft_len, len(oracle.logprob_V)), -np.inf, np.float32)
        rest = self.continuation[len(token_T) - self.prompt_len :]
        for depth, token in enumerate(rest[: oracle.draft_len]):
            row_LV[depth] = np.roll(oracle.logprob_V, token - oracle.right_rank(len(token_T) + depth))
        return row_LV
