"""Put what was trained and recorded where it ships: models with their cards, and the shipped parts of the traces.

    python data/train/ship.py

Needs target.py, drafter.py, held_out.py and the recordings out/train/t00.kdtr to t10.kdtr (README.md beside this).
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from corpus import HERE, OUT
from kdtree import Trace, replay
from kdtree.files import atomic_write

__all__ = ["cut", "table"]

DATA = HERE.parent
SHIPPED = {  # sequences, anchors, ranks: data/ stays under 40 MB, and no round is flagged
    "t00": (6, 72, 68),
    "t05": (12, 80, 60),
    "t07": (6, 72, 68),
    "t10": (6, 72, 68),
}
BUDGETS = (4, 15, 16, 32, 64, 128, 256)


def cut(trace: Trace, sequences: int, anchors: int, ranks: int) -> Trace:
    """Return the first sequences, anchors and ranks of a trace, as if no more had been recorded."""
    return replace(
        trace,
        prompt=trace.prompt[:sequences],
        prompt_len=trace.prompt_len[:sequences],
        continuation=trace.continuation[:sequences, :anchors],
        anchor_count=trace.anchor_count[:sequences].clip(max=anchors),
        topk_ids=trace.topk_ids[:sequences, :anchors, :, :ranks],
        topk_log_probs=trace.topk_log_probs[:sequences, :anchors, :, :ranks],
    )


def table(traces: dict[str, Trace]) -> str:
    """Return tokens per round with 95% intervals, one row a trace, in Markdown."""
    lines = [
        "| | chain | " + " | ".join(f"B = {budget}" for budget in BUDGETS) + " |",
        "|---" * (len(BUDGETS) + 2) + "|",
    ]
    for name, trace in traces.items():
        chain, trees = replay(trace, "chain", [trace.draft_len]), replay(trace, "ddtree", BUDGETS)
        cells = [cell(chain.tau[trace.draft_len], chain.tau_interval[trace.draft_len])]
        cells += [cell(trees.tau[budget], trees.tau_interval[budget]) for budget in BUDGETS]
        lines.append(f"| T = {int(name[1:]) / 10:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(tau: float, interval: tuple[float, float]) -> str:
    """Return a figure with its interval."""
    return f"{tau:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def main() -> None:
    """Write data/models and data/traces."""
    recorded = {name: Trace.load(OUT / f"{name}.kdtr") for name in SHIPPED}
    shipped = {name: cut(trace, *SHIPPED[name]) for name, trace in recorded.items()}
    for name, trace in shipped.items():
        trace.validate()
        trace.save(DATA / "traces" / f"tiny_{name}.kdtr")
    facts = {
        **json.loads((OUT / "held_out.json").read_text()),
        "recorded": table(recorded),
        "shipped": table(shipped),
    }
    for name in ("tiny-target", "tiny-drafter"):
        folder = DATA / "models" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(OUT / "full" / name / file, folder / file)
        card = (Path(__file__).parent / f"{name}.card.md").read_text().format(**facts)
        with atomic_write(folder / "README.md") as out:
            out.write(card.encode())


if __name__ == "__main__":
    main()
