"""`kdtree info`: what runs here."""

import platform
from importlib import import_module
from importlib.metadata import version
from math import prod
from pathlib import Path
from shutil import which

import numpy as np
import typer

from kdtree import kdtr, ops
from kdtree.drafter_loading import parse_drafter_config
from kdtree.hf_config import parse_config
from kdtree.hf_tensors import open_tensors, parsed
from kdtree.shipped import DRAFTER, TARGET
from kdtree.trace import SHIPPED

from .options import summary

__all__ = ["info"]

BACKENDS = ("numpy", *ops.FILE)
LIBRARY = {"cuda": "cupy"}


def info() -> None:
    """List versions, backends, devices, ops, shipped traces and models."""
    typer.echo(f"kdtree  {version('kdtree-lab')}")
    typer.echo(f"python  {platform.python_version()} on {platform.machine()} {platform.system()}")
    typer.echo("\nbackends")
    for backend in BACKENDS:
        typer.echo(f"  {backend:6}  {state(backend)}")
    typer.echo("\nops" + " " * 22 + "  ".join(f"{backend:5}" for backend in BACKENDS))
    for name, op in ops.all_ops().items():
        marks = ("yes" if backend in op.backends() else "-" for backend in BACKENDS)
        typer.echo(f"  {name:23}" + "  ".join(f"{mark:5}" for mark in marks).rstrip())
    typer.echo("\ntraces")
    for path in sorted(SHIPPED.glob("*.kdtr")):
        listing = kdtr.inspect(path)
        shapes = {entry.name: entry.shape for entry in listing.tensors}
        typer.echo(f"  {path.stem:9}  {summary(shapes['topk_ids'], listing.metadata)}")
    target = parsed(TARGET / "config.json", parse_config)
    drafter = parsed(DRAFTER / "config.json", parse_drafter_config)
    typer.echo("\nmodels")
    sizes = f"vocabulary {target.vocab_size}, {target.max_position_embeddings} positions"
    typer.echo(f"  {TARGET.name:12}  {millions(TARGET):.1f} M parameters, {sizes}")
    typer.echo(f"  {DRAFTER.name:12}  {millions(DRAFTER):.1f} M parameters, L = {drafter.draft_len}")


def millions(folder: Path) -> float:
    """Count the numbers in a checkpoint, without reading them."""
    with open_tensors(folder, np.float32) as tensors:
        sizes = [prod(file.get_slice(name).get_shape()) for name, (_, file) in tensors.where.items()]
    return float(sum(sizes) / 1e6)


def state(backend: str) -> str:
    """Say which version of what runs a backend is here and which devices it sees, or why it does not run."""
    if backend == "host":
        compiler = which("g++")
        return f"g++ at {compiler}" if compiler else f"no g++; {ops.REMEDY[backend]}"
    library = LIBRARY.get(backend, backend)
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
