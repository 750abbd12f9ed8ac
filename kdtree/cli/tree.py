"""`kdtree tree`: draw the tree of one position of a trace."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kdtree import builders
from kdtree.files import atomic_write
from kdtree.reference.arrays import Index
from kdtree.replay import tree_at
from kdtree.tree import DraftTree

from .options import MOST_NODES, TraceArgument, check_out, integer, open_trace

__all__ = ["tree"]

FORMATS = (".svg", ".png", ".pdf", ".txt")


def tree(
    trace: TraceArgument = None,
    sequence: Annotated[int, typer.Option(parser=integer, metavar="N", help="Sequence of the trace.")] = 0,
    anchor: Annotated[
        int,
        typer.Option(parser=integer, metavar="N", help="Position in its continuation; the root is the token there."),
    ] = 0,
    builder: Annotated[str, typer.Option(help=f"One of {', '.join(builders.names())}.")] = "ddtree",
    budget: Annotated[int, typer.Option(parser=integer, metavar="N", help="Nodes below the root.")] = 16,
    out: Annotated[
        Path | None, typer.Option(help=f"Write a file, by suffix {' '.join(FORMATS)}, instead of the terminal.")
    ] = None,
) -> None:
    """Draw one draft tree, with the path that the target accepts marked."""
    if out is not None:
        check_out(out, FORMATS)
    if budget > MOST_NODES:
        raise ValueError(f"--budget: got {budget}, needs at most {MOST_NODES}")
    recorded = open_trace(trace)
    drafted, path = tree_at(recorded, sequence, anchor, builder, budget)
    if out is None:
        typer.echo(drafted.text(recorded.label, path))
        typer.echo(
            f"accepts {len(path)} tokens, the bonus token included; "
            f"{drafted.expected_accept_len:.2f} expected by the drafter's own probabilities"
        )
        return
    with atomic_write(out) as file:
        file.write(drawing(drafted, out.suffix.lower(), recorded.label, path))
    typer.echo(f"wrote {out}")


def drawing(drafted: DraftTree, suffix: str, label: Callable[[int], str], path: Index) -> bytes:
    """Draw the tree in the format of the suffix."""
    if suffix == ".txt":
        return (drafted.text(label, path) + "\n").encode()
    if suffix == ".svg":
        return drafted.svg(label, path).encode()
    from matplotlib import pyplot as plt

    from kdtree import plot

    figure = plot.tree(drafted, label=label, path=path).get_figure(root=True)
    assert figure is not None
    content = io.BytesIO()
    figure.savefig(content, format=suffix[1:], dpi=160)
    plt.close(figure)
    return content.getvalue()
