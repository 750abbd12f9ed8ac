"""A sweep of every budget 1..256 against one of budget 256 alone: python benchmarks/sweep.py."""

from statistics import median

from timing import take_turns

from kdtree import Trace, replay

MOST = 256
BAR_RATIO, BAR_SECONDS = 1.3, 5.0


def main() -> None:
    """Check that both sweeps agree where they meet, then compare them."""
    trace = Trace.shipped("pilot_t05")
    alone, every = replay(trace, "ddtree", [MOST]), replay(trace, "ddtree", range(1, MOST + 1))
    assert alone.tau[MOST] == every.tau[MOST]
    assert alone.flagged[MOST] == every.flagged[MOST]
    times = take_turns(
        {
            "every": lambda: replay(trace, "ddtree", range(1, MOST + 1)).tau,
            "alone": lambda: replay(trace, "ddtree", [MOST]).tau,
            "every, 2 workers": lambda: replay(trace, "ddtree", range(1, MOST + 1), workers=2).tau,
            "four sweeps": lambda: [replay(trace, "ddtree", [budget]).tau for budget in (64, 128, 192, 256)],
        },
        seconds=6.0,
    )
    ratio = times.ratio("every", "alone")
    print(f"budgets 1..{MOST} in one sweep, against {MOST} alone: {ratio:.2f}x the time")
    print(f"  bar {BAR_RATIO}x: {'met' if ratio <= BAR_RATIO else 'MISSED'}")
    print(f"  bar {BAR_SECONDS:.0f} s after compilation: {'met' if median(times['every']) < BAR_SECONDS else 'MISSED'}")
    print(
        f"four sweeps of a budget each, against all {MOST} in one: {times.ratio('four sweeps', 'every'):.2f}x the time"
    )
    print(f"two workers against one: {times.ratio('every', 'every, 2 workers'):.2f}x as fast")


if __name__ == "__main__":
    main()
