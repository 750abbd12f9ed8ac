"""The KDTR container: named numpy arrays and a string map in one file. docs/kdtr.md defines every byte."""

import mmap
import os
import stat
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kdtree.files import atomic_write
from kdtree.kdtr_layout import (
    DTYPES,
    MIN_FILE,
    KdtrError,
    Listing,
    TensorEntry,
    decode_head,
    encode_head,
    place,
)

__all__ = ["Kdtr", "KdtrError", "Listing", "TensorEntry", "inspect", "load", "save"]

Result = TypeVar("Result")

_NUMPY = {
    "bool": np.dtype("?"),
    "u8": np.dtype("u1"),
    "i8": np.dtype("i1"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
    "u64": np.dtype("<u8"),
    "f16": np.dtype("<f2"),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}
_NAME = {dtype: name for name, dtype in _NUMPY.items()}


class Kdtr(NamedTuple):
    """The contents of a file: read-only arrays by name, in file order, and the metadata."""

    tensors: dict[str, NDArray[Any]]
    metadata: dict[str, str]


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays and metadata to a KDTR file, whole or not at all.

    The bytes are a function of the ordered tensors and the metadata alone: same input, same file, on any machine.

    Parameters
    ----------
    path : str or PathLike
        The file to create or replace. It may be the file that some of the arrays were loaded from: the name gets the
        new bytes and the loaded arrays keep the old ones (on POSIX systems).
    tensors : mapping of str to ndarray
        Arrays of dtype bool, uint8, int8, int32, int64, uint64, float16, bfloat16 (ml_dtypes), float32 or float64, in
        the order in which they will lie in the file. Any strides and either byte order; at most 8 dimensions. Lists,
        numbers and array subclasses other than `np.memmap` are refused: `np.asarray` says what they mean.
    metadata : mapping of str to str, optional
        Stored in the order of the keys.

    Raises
    ------
    KdtrError
        A name, dtype, shape or metadata string is outside the format. Nothing is cast silently.
    OSError
        The file cannot be written. The old file, if any, is untouched.

    Cost
    ----
    O(bytes). Arrays that are not C-contiguous and little-endian are copied one at a time.

    Invariants
    ----------
    - what was saved is loaded, to the bit (test_what_is_saved_is_loaded_to_the_bit)
    - saving twice gives the same bytes (test_the_same_input_gives_the_same_bytes)
    - a failed save leaves the old file (test_a_failed_save_leaves_the_old_file)
    - other dtypes are refused (test_an_unsupported_dtype_is_refused_by_name)

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/x.kdtr", {"depth": np.arange(3, dtype=np.int32)}, {"made by": "a doctest"})
    ...     load(f"{folder}/x.kdtr").tensors["depth"]
    array([0, 1, 2], dtype=int32)
    """
    arrays = list(tensors.items())
    described = [(name, _dtype_name(name, array), array.shape) for name, array in arrays]
    listing = place(described, dict(metadata or {}))
    with atomic_write(path) as file:
        file.write(bytes(listing.head_length))
        entries = []
        for entry, (_, array) in zip(listing.tensors, arrays, strict=True):
            data = _little_endian_bytes(array)
            file.write(bytes(entry.offset - file.tell()))
            file.write(data)
            entries.append(entry._replace(crc32=zlib.crc32(data)))
        file.seek(0)
        file.write(encode_head(listing._replace(tensors=tuple(entries))))


def load(path: str | os.PathLike[str]) -> Kdtr:
    """Map a KDTR file and return its arrays after every check of the format.

    The arrays are read-only views of the mapped file, and the map lives as long as any of them. Replace the file by
    rename while they live, as `save` does; cutting it in place makes the system end the process.

    Parameters
    ----------
    path : str or PathLike
        A regular file.

    Returns
    -------
    Kdtr
        `tensors`, a dict from name to read-only array in file order, and `metadata`, a dict from str to str.

    Raises
    ------
    KdtrError
        The file is not exactly a KDTR file: structure, limits, padding, CRC-32 or a bool byte other than 0 and 1.
    OSError
        The file cannot be opened.

    Cost
    ----
    O(bytes) time, one pass for the CRCs. No copy of the data: memory is O(head).

    Invariants
    ----------
    - every truncation is refused (test_every_truncation_is_refused)
    - every single-bit flip is refused (test_every_single_bit_flip_is_refused)
    - an accepted file is the one that `save` writes (test_an_accepted_file_is_the_file_that_save_writes)
    - refusal is quick and small (test_hostile_files_are_refused_quickly_in_little_memory)
    - the C++ reader agrees (test_both_readers_agree_on_edited_files)

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/x.kdtr", {"scale": np.array(0.5)}, {"unit": "nats"})
    ...     load(f"{folder}/x.kdtr")
    Kdtr(tensors={'scale': array(0.5)}, metadata={'unit': 'nats'})
    """
    return _on_map(path, _load)


def inspect(path: str | os.PathLike[str]) -> Listing:
    """List a KDTR file without reading its tensor data.

    All of the head is checked, and checked against the file's real length. Padding, data CRCs and bool bytes are not.

    Parameters
    ----------
    path : str or PathLike
        A regular file.

    Returns
    -------
    Listing
        `version`, `file_length`, `head_length`, `metadata`, and `tensors`: a tuple of `TensorEntry` (name, dtype such
        as "f32", shape, offset and nbytes in bytes, crc32) in file order.

    Raises
    ------
    KdtrError
        The head is not that of a KDTR file of this length.
    OSError
        The file cannot be opened.

    Cost
    ----
    O(head), whatever the size of the data.

    Invariants
    ----------
    - it lists what `load` returns (test_inspect_lists_what_load_returns)
    - it refuses every head that `load` refuses (test_inspect_refuses_every_bad_head)

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/x.kdtr", {"scale": np.array(0.5)})
    ...     inspect(f"{folder}/x.kdtr").tensors[0]
    TensorEntry(name='scale', dtype='f64', shape=(), offset=128, nbytes=8, crc32=2369388984)
    """
    return _on_map(path, lambda mapped: decode_head(memoryview(mapped)))


def _on_map(path: str | os.PathLike[str], read: Callable[[mmap.mmap], Result]) -> Result:
    """Map a regular file and read it; put its path before the message of a KdtrError."""
    try:
        return read(_map(path))
    except KdtrError as error:
        message = str(error)
    # Raised here, the error holds no frame that holds the map, so a refused file is closed at once.
    raise KdtrError(f"{os.fspath(path)}: {message}")


def _map(path: str | os.PathLike[str]) -> mmap.mmap:
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise KdtrError("a regular file is needed")
        if status.st_size < MIN_FILE:
            raise KdtrError(f"the file has {status.st_size} bytes, at least {MIN_FILE} are needed")
        return mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_READ)


def _load(mapped: mmap.mmap) -> Kdtr:
    data = memoryview(mapped)
    listing = decode_head(data)
    end = listing.head_length
    for entry in listing.tensors:
        if any(data[end : entry.offset]):
            raise KdtrError(f"the padding before tensor {entry.name!r} has a byte that is not 0")
        end = entry.offset + entry.nbytes
        if (computed := zlib.crc32(data[entry.offset : end])) != entry.crc32:
            raise KdtrError(f"tensor {entry.name!r} has CRC-32 {computed:08x}, the file says {entry.crc32:08x}")
        if entry.dtype == "bool" and np.ndarray(entry.nbytes, np.uint8, mapped, entry.offset).max(initial=0) > 1:
            raise KdtrError(f"tensor {entry.name!r} is bool and has a byte other than 0 and 1")
    return Kdtr({entry.name: _view(mapped, entry) for entry in listing.tensors}, listing.metadata)


def _open_at_once(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a fifo waits for a writer that may never come.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _dtype_name(name: str, array: NDArray[Any]) -> str:
    # A subclass may carry more than its values, such as a mask. A memmap does not.
    if type(array) not in (np.ndarray, np.memmap):
        raise KdtrError(f"tensor {name!r} is {type(array).__name__}, a plain numpy.ndarray is needed")
    dtype = array.dtype
    if dtype.name == "bfloat16" and dtype.type is _bfloat16().type:
        return "bf16"
    if dtype.kind in "biuf" and (found := _NAME.get(dtype.newbyteorder("<"))):
        return found
    raise KdtrError(f"tensor {name!r} has dtype {dtype}, one of {', '.join(DTYPES)} is needed")


def _little_endian_bytes(array: NDArray[Any]) -> memoryview:
    """Return the elements in C order as bytes, copied only where the array does not lie like this already."""
    # Unsigned integers keep every bit of a NaN, and bfloat16 has no other way to change its byte order.
    unsigned = np.dtype(f"u{array.itemsize}")
    bits = array.view(unsigned.newbyteorder(array.dtype.byteorder))
    if array.dtype.kind == "b":
        bits = (bits != 0).view(np.uint8)
    return np.ascontiguousarray(bits, unsigned.newbyteorder("<")).reshape(-1).view(np.uint8).data


def _view(mapped: mmap.mmap, entry: TensorEntry) -> NDArray[Any]:
    if entry.dtype != "bf16":
        return np.ndarray(entry.shape, _NUMPY[entry.dtype], mapped, entry.offset)
    bits: NDArray[Any] = np.ndarray(entry.shape, "<u2", mapped, entry.offset)
    # bfloat16 exists in the machine's own byte order only: this copies on a big-endian machine.
    view = bits.astype(np.uint16, copy=False).view(_bfloat16())
    view.flags.writeable = False
    return view


def _bfloat16() -> np.dtype[Any]:
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
