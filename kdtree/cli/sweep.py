"""`kdtree sweep`: accept length against budget, from a trace."""

import csv
import io
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kdtree import builders
from kdtree.files import atomic_write
from kdtree.replay import replay
from kdtree.replay_result import ReplayResult

from .options import MOST_NODES, SHIPPED_TRACE, TraceArgument, check_out, integer, open_trace, progress_bar, summary

__all__ = ["sweep"]

MOST_BUDGETS = 4096
FORMATS = (".png", ".svg", ".pdf", ".json", ".csv")


def sweep(
    trace: TraceArgument = None,
    builders_: Annotated[
        str,
        typer.Option(
            "--builders", help=f"Comma list of {', '.join(builders.names())}; settings as in accum_logp:width=8."
        ),
    ] = "chain,ddtree",
    budgets: Annotated[
        str, typer.Option(help="Comma list of budgets; a..b is every budget from a to b.")
    ] = "1,2,4,8,16,32,64,128,256",
    out: Annotated[
        list[Path] | None, typer.Option(help=f"Also write a file, by suffix {' '.join(FORMATS)}; may be repeated.")
    ] = None,
    workers: Annotated[int, typer.Option(parser=integer, metavar="N", help="Threads that share the sequences.")] = 1,
) -> None:
    """Replay a trace with each builder at each budget; print and plot the accepted lengths."""
    wanted = parse_budgets(budgets)
    names = list(dict.fromkeys(name.strip() for name in builders_.split(",")))
    for name in names:
        builders.get(name)
    for path in out or []:
        check_out(path, FORMATS)
    recorded = open_trace(trace)
    results = {}
    for name in names:
        with progress_bar(f"replay {name}") as progress:
            results[name] = replay(recorded, name, wanted, workers=workers, progress=progress)
    for path in out or []:  # first of all: whoever reads the table may leave early
        write(path, results)
    typer.echo(f"{trace or SHIPPED_TRACE}: {summary(recorded.topk_ids.shape, recorded.metadata)}")
    print_table(results)
    for path in out or []:
        typer.echo(f"wrote {path}")


def parse_budgets(text: str) -> list[int]:
    """Read "1,2,4..8" as 1, 2, 4, 5, 6, 7, 8, sorted."""
    budgets: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if len(part) > 40 or not first.isdecimal() or (dots and not last.isdecimal()):
            raise ValueError(f"--budgets: got {part.strip()[:40]!r}, needs a number or a range such as 4..256")
        span = range(int(first), int(last or first) + 1)
        if not span:
            raise ValueError(f"--budgets: got {part.strip()!r}, needs a range that ascends")
        if span[-1] > MOST_NODES or len(span) > MOST_BUDGETS:
            raise ValueError(f"--budgets: got {part.strip()}, needs at most {MOST_NODES}, and {MOST_BUDGETS} of them")
        budgets.update(span)
    return sorted(budgets)


def print_table(results: dict[str, ReplayResult]) -> None:
    """Print one row a budget and one column a builder; a narrow terminal wraps lines and loses nothing."""
    rows, flagged = [["budget", *(f"{name} " for name in results)]], []
    for budget in next(iter(results.values())).budgets:
        row = [str(budget)]
        for name, result in results.items():
            low, high = result.tau_interval[budget]
            row.append(f"{result.tau[budget]:.4f} [{low:.2f}, {high:.2f}]" + " *"[bool(result.flagged[budget])])
            if result.flagged[budget]:
                flagged.append(f"{result.flagged[budget]} of {result.rounds[budget]} ({name}, {budget})")
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    typer.echo("Tokens per round, the bonus token included, and 95% bootstrap intervals over sequences.")
    if flagged:
        some = ", ".join(flagged[:3]) + ", ..." * (len(flagged) > 3)
        typer.echo(f"* rounds that more recorded ranks might change: {some}")


def write(path: Path, results: dict[str, ReplayResult]) -> None:
    """Write the results in the format of the suffix, all of the file or nothing."""
    if path.suffix.lower() == ".json":
        content = json.dumps({name: list(rows(result)) for name, result in results.items()}, indent=1).encode()
    elif path.suffix.lower() == ".csv":
        text = io.StringIO()
        table = [{"builder": name, **row} for name, result in results.items() for row in rows(result)]
        writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        content = text.getvalue().encode()
    else:
        content = picture(results, path.suffix[1:].lower())
    with atomic_write(path) as file:
        file.write(content)


def rows(result: ReplayResult) -> list[dict[str, Any]]:
    """Return one record a budget."""
    return [
        {
            "budget": budget,
            "tau": result.tau[budget],
            "tau_low": result.tau_interval[budget][0],
            "tau_high": result.tau_interval[budget][1],
            "macro_tau": result.macro_tau[budget],
            "macro_tau_low": result.macro_tau_interval[budget][0],
            "macro_tau_high": result.macro_tau_interval[budget][1],
            "rounds": result.rounds[budget],
            "flagged": result.flagged[budget],
        }
        for budget in result.budgets
    ]


def picture(results: dict[str, ReplayResult], suffix: str) -> bytes:
    """Draw the curves without touching the global figure state."""
    from matplotlib.figure import Figure

    from kdtree import plot

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    plot.accept_curve(results, figure.add_subplot())
    content = io.BytesIO()
    figure.savefig(content, format=suffix, dpi=160)
    return content.getvalue()
