"""`kdtree info`: what runs here."""

import platform
from importlib import import_module
from importlib.metadata import version

import typer

from kdtree import ops
from kdtree.trace import Trace

__all__ = ["info"]


def info() -> None:
    """List versions, backends, devices, ops and shipped traces."""
    typer.echo(f"kdtree  {version('kdtree-lab')}")
    typer.echo(f"python  {platform.python_version()} on {platform.machine()} {platform.system()}")
    typer.echo("\nbackends")
    for backend, library in {"numpy": "numpy", **ops.LIBRARY}.items():
        typer.echo(f"  {backend:6}  {state(backend, library)}")
    typer.echo("\nops" + " " * 22 + "  ".join(f"{backend:5}" for backend in ("numpy", *ops.LIBRARY)))
    for name, op in ops.all_ops().items():
        marks = ("yes" if backend in op.backends() else "-" for backend in ("numpy", *ops.LIBRARY))
        typer.echo(f"  {name:23}" + "  ".join(f"{mark:5}" for mark in marks).rstrip())
    typer.echo("\ntraces")
    for name in Trace.shipped_names():
        trace = Trace.shipped(name)
        typer.echo(f"  {name}  {trace!r:.60}  {trace.metadata.get('decoding', '')}")


def state(backend: str, library: str) -> str:
    """Say which version of the library is here and which devices it sees, or why it does not run."""
    try:
        module = import_module(library)
    except ImportError:
        return f"not installed; {ops.REMEDY[backend]}"
    found = f"{library} {module.__version__}"
    return f"{found}, {devices(module)}" if backend == "cuda" else found


def devices(cupy: object) -> str:
    """Name the CUDA devices."""
    try:
        runtime = cupy.cuda.runtime  # type: ignore[attr-defined]
        count = runtime.getDeviceCount()
        names = [runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
    except Exception as error:
        return f"no device ({error})"
    return ", ".join(names)
