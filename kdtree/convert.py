"""Turn .npz and .safetensors files into KDTR files."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kdtree.kdtr import KdtrError, save

__all__ = ["convert", "read_tensors"]

_WIDER = {"int16": "int32", "uint16": "int32", "uint32": "int64"}
_SAFETENSORS = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


def convert(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], *, widen: bool = False
) -> dict[str, str]:
    """Convert an .npz or .safetensors file to a .kdtr file, with equal names, shapes, dtypes and values.

    The string metadata of a .safetensors file is kept. Tensors come in the order of an .npz archive, and in the order
    of their names from .safetensors.

    Parameters
    ----------
    source : str or PathLike
        A file whose name ends in .npz or .safetensors.
    destination : str or PathLike
        A file whose name ends in .kdtr. It is replaced whole, or untouched on failure.
    widen : bool
        Store int16 and uint16 as i32 and uint32 as i64, which hold every value. Without it these dtypes are refused.

    Returns
    -------
    dict of str to str
        The source dtype of every tensor that was widened, by name. Empty when nothing was.

    Raises
    ------
    KdtrError
        The source is malformed, holds pickled objects (they are never unpickled), or has a name or dtype that KDTR
        does not have. The message names the file and the tensor.
    OSError
        The source cannot be read or the destination cannot be written.

    Cost
    ----
    O(bytes) time and memory: all tensors are in memory at once.

    Invariants
    ----------
    - values, names and metadata are kept (test_safetensors_names_values_and_metadata_are_kept,
      test_npz_names_and_values_are_kept)
    - pickles are refused unread (test_a_pickle_is_refused_without_being_run)
    - widening is lossless and reported (test_widening_keeps_every_value_and_is_reported)
    - a failure writes nothing (test_a_malformed_source_is_refused_and_writes_nothing)

    Examples
    --------
    >>> import tempfile
    >>> from kdtree.kdtr import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/x.npz", depth=np.array([0, 1, 1], np.int16))
    ...     print(convert(f"{folder}/x.npz", f"{folder}/x.kdtr", widen=True))
    ...     load(f"{folder}/x.kdtr").tensors["depth"]
    {'depth': 'int16'}
    array([0, 1, 1], dtype=int32)
    """
    source, destination = Path(source), Path(destination)
    if destination.suffix != ".kdtr":
        raise KdtrError(f"{destination}: the name must end in .kdtr")
    tensors, metadata = read_tensors(source)
    widened = {}
    for name, array in tensors.items():
        if (narrow := array.dtype.name) in _WIDER:
            if not widen:
                wider = _WIDER[narrow]
                raise KdtrError(f"{source}: tensor {name!r} has dtype {narrow}; widen=True stores it as {wider}")
            tensors[name] = array.astype(_WIDER[narrow])
            widened[name] = narrow
    try:
        save(destination, tensors, metadata)
    except KdtrError as error:
        raise KdtrError(f"{source}: {error}") from None
    return widened


def read_tensors(source: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays and the metadata of an .npz or .safetensors file; KdtrError if it is malformed."""
    read = {".npz": _read_npz, ".safetensors": _read_safetensors}.get(source.suffix)
    if read is None:
        raise KdtrError(f"{source}: the name must end in .npz or .safetensors")
    if source.exists() and not source.is_file():
        raise KdtrError(f"{source}: a regular file is needed")
    # A missing or unreadable file is an OSError here; whatever the parsers raise after this is about its bytes.
    source.open("rb").close()
    try:
        return read(source)
    except KdtrError as error:
        raise KdtrError(f"{source}: {error}") from None
    # Both parsers raise many classes on hostile bytes: zipfile, zlib, tokenize, SafetensorError, MemoryError and more.
    except Exception as error:
        raise KdtrError(f"{source}: not a readable {source.suffix} file: {error}") from error


def _read_npz(source: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    tensors: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name == member.filename:
                raise KdtrError(f"member {name!r} is not an .npy array")
            if name in tensors:
                raise KdtrError(f"tensor {name!r} comes twice")
            content = io.BytesIO(archive.read(member))
            try:
                tensors[name] = np.lib.format.read_array(content, allow_pickle=False)
            except ValueError as error:
                raise KdtrError(f"tensor {name!r}: {error}") from None
            if content.read(1):
                raise KdtrError(f"tensor {name!r} has bytes after its data")
    return tensors, {}


def _read_safetensors(source: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    # ml_dtypes gives numpy the bfloat16 that safetensors asks it for.
    import ml_dtypes  # noqa: F401
    from safetensors import safe_open

    with safe_open(source, framework="numpy") as file:
        tensors = {}
        for name in sorted(file.keys()):
            dtype = file.get_slice(name).get_dtype()
            if dtype not in _SAFETENSORS:
                raise KdtrError(f"tensor {name!r} has dtype {dtype}, one of {', '.join(_SAFETENSORS)} is needed")
            tensors[name] = file.get_tensor(name)
        return tensors, file.metadata() or {}
