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
    total = sum(len(properties_of(kernel)) for kernel in kernels)
    found: list[tuple[str, Outcome]] = []
    with progress_bar("check") as progress:
        for kernel in kernels:
            for outcome in outcomes(kernel, examples=examples, seed=seed):
                found.append((kernel.op, outcome))
                progress(len(found), total)
    typer.echo(f"{backend}: {state(backend)}\n")
    print_table(found, [property_.__name__ for property_ in PROPERTIES])
    failures = [outcome.failure for _, outcome in found if outcome.failure]
    for failure in failures:
        typer.echo(f"\n{failure}")
    tried = sum(outcome.examples for _, outcome in found if not outcome.failure)
    typer.echo(f"\n{len(found) - len(failures)} of {len(found)} properties hold, {tried:,} examples tried")
    return int(bool(failures))


def names_of(names: list[str], backend: str, source: Path | None) -> list[str]:
    """Return the ops to check."""
    known = [name for name, op in ops.all_ops().items() if backend in op.backends()]
    if source is not None:
        names = names or [source.stem]
        if len(names) > 1:
            raise ValueError(f"--source: got {len(names)} ops, needs one")
    return [*dict.fromkeys(names)] or known or [*ops.all_ops()]  # any op refuses an unknown backend


def print_table(found: "list[tuple[str, Outcome]]", columns: list[str]) -> None:
    """Print a row an op: examples tried, FAIL, or a dash where a property was not tried."""
    cells = {(op, outcome.property): "FAIL" if outcome.failure else str(outcome.examples) for op, outcome in found}
    rows = [["", *columns]]
    rows += [[op, *(cells.get((op, column), "-") for column in columns)] for op in dict(found)]
    for name, *texts in rows:
        padded = (f"{text:>{max(len(column), 5)}}" for text, column in zip(texts, columns, strict=True))
        typer.echo("  ".join([f"{name:20}", *padded]))
