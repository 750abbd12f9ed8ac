"""Read the tensors of a checkpoint folder by name, from one .safetensors file or from shards with an index."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .hf_values import Json, ModelError, table
from .reference.arrays import Float

__all__ = ["Tensors", "one_dtype", "open_tensors", "parsed", "read_json"]

Parsed = TypeVar("Parsed")

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("F32", "BF16", "F16")


def one_dtype(dtype: DTypeLike) -> type[np.floating[Any]]:
    """Return np.float32 or np.float64, however it is spelt; ModelError for anything else."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise ModelError(f"dtype: got {dtype!r}, needs float32 or float64") from None
    if kind not in (np.float32, np.float64):
        raise ModelError(f"dtype: got {kind}, needs float32 or float64")
    return np.float32 if kind == np.float32 else np.float64


def read_json(path: Path) -> Json:
    """Return the object in a JSON file; ModelError names the file."""
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    try:
        return table(str(path), json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, ModelError) else ModelError(f"{path}: not JSON: {error}") from None


def parsed(path: Path, parse: Callable[[Json], Parsed]) -> Parsed:
    """Return what `parse` makes of the object in a JSON file; ModelError names the file."""
    given = read_json(path)
    try:
        return parse(given)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


class Tensors:
    """Named tensors of one or more open files. What is taken is checked, and what was not taken can be listed."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self.folder = folder
        self.dtype = dtype  #: of the floats that `floats` returns
        self.where: dict[str, tuple[Path, Any]] = {}  #: the file of every tensor, and its open reader
        self.taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.where

    def add(self, path: Path, file: Any, names: set[str]) -> None:
        """Add the tensors of an open file, which are exactly `names`."""
        found = set(file.keys())
        for name in sorted(names - found):
            raise ModelError(f"{path}: tensor {name!r} is missing, {INDEX} says that it is here")
        for name in sorted(found - names):
            raise ModelError(f"{path}: tensor {name!r} is here, {INDEX} does not say so")
        self.where.update(dict.fromkeys(names, (path, file)))

    def take(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> NDArray[Any]:
        """Return a tensor as it is stored; ModelError unless it has this shape and one of these dtypes."""
        if name not in self.where:
            raise self.wrong(name, "is missing")
        _, file = self.where[name]
        stored = file.get_slice(name)
        found, dtype = tuple(stored.get_shape()), stored.get_dtype()
        if found != shape or dtype not in dtypes:
            raise self.wrong(name, f"is {dtype} {found}, needs {' or '.join(dtypes)} {shape}")
        self.taken.add(name)
        array: NDArray[Any] = file.get_tensor(name)
        return array

    def floats(self, name: str, *shape: int) -> Float:
        """Take a tensor of finite floats and cast it, exactly."""
        array: Float = self.take(name, shape, FLOATS).astype(self.dtype, copy=False)
        if not np.isfinite(array).all():
            raise self.wrong(name, "has a value that is not finite")
        return array

    def check_all_taken(self, user: str) -> None:
        """Raise ModelError for the first tensor that was not taken: its user computes something else then."""
        for name in sorted(self.where.keys() - self.taken):
            raise self.wrong(name, f"is not one that this {user} uses")

    def wrong(self, name: str, what: str) -> ModelError:
        """Return an error that names the tensor and its file, or the folder if it has none."""
        return ModelError(f"{self.where[name][0] if name in self else self.folder}: tensor {name!r} {what}")


@contextmanager
def open_tensors(folder: Path, dtype: DTypeLike) -> Iterator[Tensors]:
    """Open every file of a checkpoint and check that each holds the tensors that the index says.

    Raises
    ------
    ModelError
        A file is missing or malformed, or the index and the files disagree.
    """
    import ml_dtypes  # noqa: F401, it gives numpy the bfloat16 that safetensors asks it for

    tensors = Tensors(folder, np.dtype(dtype))
    with ExitStack() as stack:
        if (folder / SINGLE).is_file():
            file = stack.enter_context(open_file(folder / SINGLE))
            tensors.add(folder / SINGLE, file, set(file.keys()))
        elif (folder / INDEX).is_file():
            for name, names in shards(folder / INDEX).items():
                tensors.add(folder / name, stack.enter_context(open_file(folder / name)), names)
        else:
            raise ModelError(f"{folder}: no {SINGLE} and no {INDEX}, needs one of them")
        yield tensors


def open_file(path: Path) -> Any:
    """Open a .safetensors file; ModelError names it."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise ModelError(f"{path}: not a readable .safetensors file: {error}") from None


def shards(index: Path) -> dict[str, set[str]]:
    """Return the names of the tensors of each shard."""
    found: dict[str, set[str]] = {}
    for name, shard in table(f"{index}: weight_map", read_json(index).get("weight_map")).items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise ModelError(f"{index}: tensor {name!r} is in {shard!r}, needs a .safetensors file in the same folder")
        found.setdefault(shard, set()).add(name)
    return found
