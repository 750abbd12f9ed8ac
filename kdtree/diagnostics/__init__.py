"""What a trace says about its drafter: calibration, hits, what comes after a sibling, and where rounds end.

Every function takes a `Trace` and returns arrays; `kdtree.plot_diagnostics` draws them.
"""

from .marginals import (
    AfterSibling,
    Calibration,
    FirstChoice,
    Reliability,
    TargetRanks,
    after_sibling,
    calibration,
    hit_rates,
    reliability,
    target_ranks,
)
from .rounds import RoundEnds, Surrogate, round_ends, surrogate

__all__ = [
    "AfterSibling",
    "Calibration",
    "FirstChoice",
    "Reliability",
    "RoundEnds",
    "Surrogate",
    "TargetRanks",
    "after_sibling",
    "calibration",
    "hit_rates",
    "reliability",
    "round_ends",
    "surrogate",
    "target_ranks",
]
