"""Time several callables in one run, by turns, and compare them."""

import time
from collections.abc import Callable, Mapping

__all__ = ["best_seconds"]


def best_seconds(contenders: Mapping[str, Callable[[], object]], seconds: float = 1.0) -> dict[str, float]:
    """Return the best time of each contender, called by turns for about `seconds` in all, three times at least.

    Taking turns gives every contender the same share of a busy machine; the best time is the least disturbed one.
    """
    best = dict.fromkeys(contenders, float("inf"))
    end = time.perf_counter() + seconds
    turns = 0
    while turns < 3 or time.perf_counter() < end:
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
        turns += 1
    return best
