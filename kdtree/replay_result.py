"""What a replay measured, by budget."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["ReplayResult"]

RESAMPLES = 2000
CONFIDENCE = 0.95


class ReplayResult:
    """Accepted lengths of a builder, in tokens a round, the bonus token included. Every mapping is by budget.

    Intervals are bootstrap intervals over sequences: percentiles of resamples with a fixed seed.

    Parameters
    ----------
    budgets : tuple of int
        G budgets.
    accept_len_SRG : list of S int arrays, shape (R, G)
        Accepted length of each round of each sequence at each budget; 0 after the last round.
    flagged_SG : int, shape (S, G)
        Rounds whose tree took the last recorded rank and had budget for more.
    """

    def __init__(
        self, budgets: tuple[int, ...], accept_len_SRG: list[NDArray[np.int64]], flagged_SG: NDArray[np.int64]
    ) -> None:
        self.budgets = budgets
        self._accept_len_SRG = accept_len_SRG
        self._flagged_SG = flagged_SG
        self._tokens_SG = np.array([accept_len_RG.sum(axis=0) for accept_len_RG in accept_len_SRG], np.float64)
        self._rounds_SG = np.array([(accept_len_RG > 0).sum(axis=0) for accept_len_RG in accept_len_SRG], np.float64)

    @cached_property
    def tau(self) -> dict[int, float]:
        """Accepted length, the mean over all rounds."""
        return self._by_budget(self._tokens_SG.sum(axis=0) / self._rounds_SG.sum(axis=0))

    @cached_property
    def macro_tau(self) -> dict[int, float]:
        """Accepted length, the mean over sequences of their means."""
        return self._by_budget(self._mean_by_sequence.mean(axis=0))

    @cached_property
    def rounds(self) -> dict[int, int]:
        """Rounds played: passes of the target model."""
        return {budget: int(n) for budget, n in zip(self.budgets, self._rounds_SG.sum(axis=0), strict=True)}

    @cached_property
    def flagged(self) -> dict[int, int]:
        """Rounds that a trace with more ranks recorded might have played differently."""
        return {budget: int(n) for budget, n in zip(self.budgets, self._flagged_SG.sum(axis=0), strict=True)}

    @cached_property
    def accept_lens(self) -> dict[int, list[NDArray[np.int64]]]:
        """Accepted length of every round: one array a sequence."""
        return {
            budget: [accept_len_RG[:, g][accept_len_RG[:, g] > 0] for accept_len_RG in self._accept_len_SRG]
            for g, budget in enumerate(self.budgets)
        }

    @cached_property
    def tau_interval(self) -> dict[int, tuple[float, float]]:
        """95% interval of tau."""
        picks_XS = self._resamples(len(self._rounds_SG))
        with np.errstate(invalid="ignore"):  # a resample of sequences without rounds has no mean
            return self._interval((picks_XS @ self._tokens_SG) / (picks_XS @ self._rounds_SG))

    @cached_property
    def macro_tau_interval(self) -> dict[int, tuple[float, float]]:
        """95% interval of macro_tau."""
        means = self._mean_by_sequence
        return self._interval(self._resamples(len(means)) @ means / len(means))

    def __repr__(self) -> str:
        shown = ", ".join(f"{budget}: {tau:.4f}" for budget, tau in self.tau.items())
        return f"<ReplayResult tau {{{shown}}}>"

    @property
    def _mean_by_sequence(self) -> NDArray[np.float64]:
        played = self._rounds_SG[:, 0] > 0  # a sequence has rounds at every budget or at none
        return np.asarray(self._tokens_SG[played] / self._rounds_SG[played])

    def _by_budget(self, values: NDArray[np.float64]) -> dict[int, float]:
        return dict(zip(self.budgets, values.tolist(), strict=True))

    def _interval(self, value_XG: NDArray[np.float64]) -> dict[int, tuple[float, float]]:
        tails = [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)]
        low_G, high_G = np.nanpercentile(value_XG, tails, axis=0).tolist()
        return dict(zip(self.budgets, zip(low_G, high_G, strict=True), strict=True))

    @staticmethod
    def _resamples(sequences: int) -> NDArray[np.float64]:
        """How often each resample picks each sequence."""
        generator = np.random.default_rng(0)
        return generator.multinomial(sequences, np.full(sequences, 1 / sequences), RESAMPLES).astype(np.float64)
