"""Check that live decoding in numpy's exact mode has the tokens and the rounds of every shipped trace.

    python data/train/live.py [--tokens 56] [--budgets 15 64 256]

tests/test_shipped.py does the same for two sequences a trace.
"""

import argparse

from rich.progress import Progress

from kdtree import Seeded, Target, Trace, greedy, replay, speculative
from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.shipped import tiny_pair

__all__ = ["agrees"]

TEMPERATURES = {"tiny_t00": 0.0, "tiny_t05": 0.5, "tiny_t07": 0.7, "tiny_t10": 1.0}


def agrees(pair: tuple[Target, BlockDiffusion], name: str, sequence: int, budget: int, tokens: int) -> bool:
    """Return whether a live run behind the first recorded token writes the recorded tokens in the replayed rounds.

    It may write as many tokens as the trace has anchors at which rounds start, less the first.
    """
    trace, temperature = Trace.shipped(name), TEMPERATURES[name]
    prompt = [*trace.prompt[sequence, : trace.prompt_len[sequence]], trace.continuation[sequence, 0]]
    sampler = Seeded(temperature, 0) if temperature else greedy
    live = speculative(*pair, [prompt], budget=budget, max_new_tokens=tokens, sampler=sampler).sequences[0]
    rounds = live.accept_lens[:-1]  # the limit may have cut the last
    replayed = replay(trace, "ddtree", [budget]).accept_lens[budget][sequence]
    same_rounds = rounds == tuple(replayed[: len(rounds)])
    return same_rounds and live.tokens == tuple(trace.continuation[sequence, 1 : tokens + 1])


def main() -> None:
    """Check every trace, sequence and budget; exit with 1 if one does not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=56)
    parser.add_argument("--budgets", type=int, nargs="+", default=[15, 64, 256])
    arguments = parser.parse_args()
    cases = [
        (name, sequence, budget)
        for name in TEMPERATURES
        for sequence in range(len(Trace.shipped(name).prompt))
        for budget in arguments.budgets
    ]
    pair = tiny_pair(backend="numpy", exact=True)
    with Progress() as bars:
        wrong = [case for case in bars.track(cases, description="live") if not agrees(pair, *case, arguments.tokens)]
    print(f"{len(cases) - len(wrong)} of {len(cases)} runs agree with their trace", *wrong, sep="\n")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
