"""The command line: one module a command. Every error is one line on stderr and exit status 2."""

import os
import sys

import typer
from typer import TyperException

from . import check, demo, info, kdtr, record, sweep, tree

__all__ = ["app", "main"]

app = typer.Typer(
    help="Explore draft trees: accept length against budget, tree shapes, containers. No GPU and no network needed.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(sweep.sweep)
app.command()(tree.tree)
app.command()(demo.demo)
app.command()(record.record)
app.command()(check.check)
app.command()(info.info)
app.add_typer(kdtr.app, name="kdtr")


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status: 0, or 2 after a line that says what was wrong.

    A closed pipe is 1 and an interrupt 130, as elsewhere.
    """
    try:
        status = app(args=arguments or ["--help"], prog_name="kdtree", standalone_mode=False)
        if sys.stdout is not None:  # it is where a shell closes it
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return report("interrupted", 130)
    except TyperException as error:
        return report(error.format_message() if hasattr(error, "format_message") else str(error), 2)
    except (ValueError, TypeError, IndexError, OSError, ImportError, MemoryError) as error:
        return report(str(error) or type(error).__name__, 2)
    return report("interrupted", 130) if status == 130 else int(status or 0)


def report(message: str, status: int) -> int:
    """Print a message as one line on stderr."""
    print("kdtree: " + " ".join(message.split()), file=sys.stderr)
    return status
