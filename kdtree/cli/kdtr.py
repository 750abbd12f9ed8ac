"""`kdtree kdtr`: list, check and convert containers."""

from pathlib import Path
from typing import Annotated

import typer

from kdtree import kdtr
from kdtree.convert import convert as convert_file
from kdtree.draw.labels import visible

__all__ = ["app"]

app = typer.Typer(help="List, check and convert KDTR containers (docs/kdtr.md).")

FileArgument = Annotated[Path, typer.Argument(help="A .kdtr file.")]


@app.command("list")
def list_(file: FileArgument) -> None:
    """List the tensors and the metadata; reads the head of the file alone."""
    listing = kdtr.inspect(file)
    names = [visible(entry.name) for entry in listing.tensors]
    wide = max(map(len, names), default=0)
    for name, entry in zip(names, listing.tensors, strict=True):
        typer.echo(f"{name:{wide}}  {entry.dtype:4}  {entry.nbytes:>13,} B  {list(entry.shape)}")
    for key, value in listing.metadata.items():
        typer.echo(f"{visible(key)} = {value!r}")
    typer.echo(f"{len(listing.tensors)} tensors, {listing.file_length:,} B, version {listing.version}")


@app.command()
def check(files: Annotated[list[Path], typer.Argument(help="One or more .kdtr files.")]) -> None:
    """Check every byte of every file, checksums included; the first bad one is an error."""
    for file in files:
        tensors, _ = kdtr.load(file)
        typer.echo(f"{file}: good, {len(tensors)} tensors")


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="An .npz or .safetensors file.")],
    destination: Annotated[Path, typer.Argument(help="The .kdtr file to write.")],
    widen: Annotated[bool, typer.Option("--widen", help="Store int16 and uint16 as i32, uint32 as i64.")] = False,
) -> None:
    """Convert .npz or .safetensors to .kdtr, values unchanged."""
    widened = convert_file(source, destination, widen=widen)
    for name, dtype in widened.items():
        typer.echo(f"{name}: {dtype} widened")
    typer.echo(f"wrote {destination}")
