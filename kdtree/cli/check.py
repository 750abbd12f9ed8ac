"""`kdtree check`: hold the kernels of a backend, or one of yours, to the truth."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdtree import ops
from kdtree.kernels.cuda._cache import folder

from .info import state
from .options import integer, progress_bar

if TYPE_CHECKING:
    from kdtree.testing import Outcome

__all__ = ["check"]

Row = dict[str, "Outcome"]


def check(
    op: Annotated[list[str] | None, typer.Argument(help="What to check; every op of the backend if left out.")] = None,
    backend: Annotated[str, typer.Option(help="host (CUDA sources on the CPU), cuda or numba.")] = "host",
    source: Annotated[
        Path | None, typer.Option(help="A .cu file of yours, in place of the op's; the op is its name if left out.")
    ] = None,
    examples: Annotated[int, typer.Option(parser=integer, metavar="N", help="Arguments to try a property.")] = 100,
    seed: Annotated[int, typer.Option(parser=integer, metavar="N", help="Of the arguments.")] = 0,
) -> int:
    """Hold kernels to the numpy truth on drawn arguments (docs/test-your-kernel.md); status 1 if one fails.

    A row an op, a column a property, and in it how many arguments were tried.
    """
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(folder("hypothesis")))  # it makes one where it is run
    try:
        from kdtree.testing import Kernel, outcomes
        from kdtree.testing.properties import PROPERTIES, properties_of
    except ModuleNotFoundError as error:
        raise ImportError(f"kdtree check: {error}; pip install 'kdtree-lab[check]'") from None
    if backend == "numpy":
        raise ValueError("--backend: got numpy, which is the truth; needs host, cuda or numba")
    if examples < 1:
        raise ValueError(f"--examples: got {examples}, needs 1 or more")
    kernels = [Kernel.of(name, backend, source) for name in names_of(op or [], backend, source)]
    columns = [property_.__name__ for property_ in PROPERTIES]
    typer.echo(f"{backend}: {state(backend)}\n")
    typer.echo(line("", columns, columns))
    rows, total = list[Row](), sum(len(properties_of(kernel)) for kernel in kernels)
    with progress_bar("check") as progress:
        for kernel in kernels:
            row = Row()
            for outcome in outcomes(kernel, examples=examples, seed=seed):
                row[outcome.property] = outcome
                progress(sum(map(len, rows)) + len(row), total)
            rows.append(row)
            typer.echo(line(kernel.op, [cell(row.get(column)) for column in columns], columns))
    return report([outcome for row in rows for outcome in row.values()])


def names_of(names: list[str], backend: str, source: Path | None) -> list[str]:
    """Return the ops to check."""
    known = [name for name, op in ops.all_ops().items() if backend in op.backends()] or ["tree_build"]
    if source is not None:
        names = names or [source.stem]
        if len(names) > 1:
            raise ValueError(f"--source: got {len(names)} ops, needs one")
    return names or known


def cell(outcome: "Outcome | None") -> str:
    """Say what came of a property: examples tried, FAIL, or a dash where it was not tried."""
    if outcome is None:
        return "-"
    return "FAIL" if outcome.failure else f"{outcome.examples}"


def line(name: str, cells: list[str], columns: list[str]) -> str:
    """Return a row of the table."""
    return f"{name:20}" + "".join(
        f"  {text:>{max(len(column), 5)}}" for text, column in zip(cells, columns, strict=True)
    )


def report(all_outcomes: "list[Outcome]") -> int:
    """Print what fails, and the smallest arguments where it does; return the exit status."""
    failures = [outcome.failure for outcome in all_outcomes if outcome.failure]
    for failure in failures:
        typer.echo(f"\n{failure}")
    tried = sum(outcome.examples for outcome in all_outcomes if not outcome.failure)
    typer.echo(
        f"\n{len(all_outcomes) - len(failures)} of {len(all_outcomes)} properties hold, {tried:,} examples tried"
    )
    return int(bool(failures))
