"""What several commands take or print."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Protocol

import typer

from kdtree.draw.labels import readable
from kdtree.reference.arrays import count
from kdtree.sampling import Sampler, Seeded, greedy
from kdtree.trace import Trace

__all__ = [
    "MOST_NODES", "SHIPPED_TRACE", "Progress", "TraceArgument", "check_out", "integer", "open_trace", "progress_bar",
    "sampler_of", "summary",
]  # fmt: skip

SHIPPED_TRACE = "tiny_t05"  # where none is given
MOST_NODES = 2**20  # of a tree: beyond it arrays alone take gigabytes

TraceArgument = Annotated[
    Path | None,
    typer.Argument(help=f"A trace, .kdtr or .npz (docs/trace.md); the shipped {SHIPPED_TRACE} if left out."),
]


def integer(text: str) -> int:
    """Read a whole number; the error says what came."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"got {text!r}, needs a whole number") from None


def check_out(path: Path, formats: tuple[str, ...]) -> None:
    """Refuse a file that could not be written, before any work is done."""
    if path.suffix.lower() not in formats:
        raise ValueError(f"--out: got {path}, needs a suffix of {' '.join(formats)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"--out: got {path}, needs the folder {path.parent} to exist")
    if path.exists() and not path.is_file():
        raise ValueError(f"--out: got {path}, needs a file: this is something else")
    try:
        with TemporaryFile(dir=path.resolve().parent):
            pass
    except OSError as error:
        raise OSError(f"--out: got {path}, needs a folder that takes files: {error.strerror}") from None


def sampler_of(temperature: float, seed: int) -> Sampler:
    """Return `greedy` at temperature 0, `Seeded` above; the seed is checked in both cases."""
    count("--seed", seed)
    return Seeded(temperature, seed) if temperature else greedy


def open_trace(path: Path | None) -> Trace:
    """Load the trace that a command was given, or the shipped one."""
    return Trace.shipped(SHIPPED_TRACE) if path is None else Trace.load(path)


def summary(shape: tuple[int, ...], metadata: Mapping[str, str]) -> str:
    """Say what a trace holds, and how the target decoded if that was noted."""
    S, T, L, K = shape
    decoding = " ".join(readable(metadata.get("decoding", "")).split())
    return f"{S} sequences x {T} anchors, L = {L}, K = {K}" + f"; {decoding}" * bool(decoding)


class Progress(Protocol):
    """Take the steps done so far and the steps in all."""

    def __call__(self, done: int, total: int, /) -> object: ...  # noqa: D102


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs; nothing if stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    shown = sys.stderr is not None and sys.stderr.isatty()  # it is None where a shell closes it
    with Bars(*columns, console=Console(file=sys.stderr), transient=True, disable=not shown) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
