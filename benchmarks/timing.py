"""Time several callables in one run, by turns, and compare them."""

import time
from collections.abc import Callable, Mapping
from statistics import median

__all__ = ["Times", "take_turns"]


class Times(dict[str, list[float]]):
    """Seconds of each contender, one entry a turn."""

    def ratio(self, slow: str, fast: str) -> float:
        """Return how many times as long `slow` takes: the median over turns, so a pause of the machine counts once."""
        return median(a / b for a, b in zip(self[slow], self[fast], strict=True))


def take_turns(contenders: Mapping[str, Callable[[], object]], seconds: float) -> Times:
    """Call every contender by turns for about `seconds` in all, five turns at least; a first turn warms up."""
    times = Times({name: [] for name in contenders})
    end = time.perf_counter() + seconds
    for call in contenders.values():
        call()
    while len(next(iter(times.values()))) < 5 or time.perf_counter() < end:
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return times
