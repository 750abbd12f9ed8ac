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

from .options import TraceArgument, integer, open_trace, progress_bar

__all__ = ["sweep"]

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
        check_writable(path)
    recorded = open_trace(trace)
    results = {}
    for name in names:
        with progress_bar(f"replay {name}") as progress:
            results[name] = replay(recorded, name, wanted, workers=workers, progress=progress)
    sequences = len(recorded.topk_ids)
    typer.echo(f"{trace or 'pilot_t05'}: {sequences} sequences, L = {recorded.draft_len}, K = {recorded.K}")
    print_table(results)
    for path in out or []:
        write(path, results)
        typer.echo(f"wrote {path}")


def parse_budgets(text: str) -> list[int]:
    """Read "1,2,4..8" as 1, 2, 4, 5, 6, 7, 8, sorted."""
    budgets: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise ValueError(f"--budgets: got {part.strip()!r}, needs a number or a range such as 4..256")
        span = range(int(first), int(last or first) + 1)
        if not span:
            raise ValueError(f"--budgets: got {part.strip()!r}, needs a range that ascends")
        if span[-1] > 2**20:
            raise ValueError(f"--budgets: got {span[-1]}, needs at most {2**20}")
        budgets.update(span)
    return sorted(budgets)


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written before the work is done."""
    if path.suffix not in FORMATS:
        raise ValueError(f"--out: got {path}, needs a suffix of {' '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"--out: got {path}, needs the folder {path.parent} to exist")


def print_table(results: dict[str, ReplayResult]) -> None:
    """Print one row a budget and one column a builder."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("budget", justify="right")
    for name in results:
        table.add_column(name, justify="right", no_wrap=True)
    flagged = []
    for budget in next(iter(results.values())).budgets:
        row = [str(budget)]
        for name, result in results.items():
            low, high = result.tau_interval[budget]
            row.append(f"{result.tau[budget]:.4f} [{low:.2f}, {high:.2f}]")
            if result.flagged[budget]:
                row[-1] += "*"
                flagged.append(f"{result.flagged[budget]} of {result.rounds[budget]} ({name}, {budget})")
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 40 + 40 * len(results)
    console.print(table)
    typer.echo("Tokens per round, the bonus token included, and 95% bootstrap intervals over sequences.")
    if flagged:
        some = ", ".join(flagged[:3]) + ", ..." * (len(flagged) > 3)
        typer.echo(f"* rounds that more recorded ranks might change: {some}")


def write(path: Path, results: dict[str, ReplayResult]) -> None:
    """Write the results in the format of the suffix, all of the file or nothing."""
    if path.suffix == ".json":
        content = json.dumps({name: list(rows(result)) for name, result in results.items()}, indent=1).encode()
    elif path.suffix == ".csv":
        text = io.StringIO()
        table = [{"builder": name, **row} for name, result in results.items() for row in rows(result)]
        writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        content = text.getvalue().encode()
    else:
        content = picture(results, path.suffix[1:])
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
