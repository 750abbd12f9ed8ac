"""Makers and readers of KDTR files. `raw_file` is a second encoder, written from docs/kdtr.md alone.

Run as a script it reads files from a folder and prints what became of each: the same under `python -O`.
"""

import json
import struct
import sys
import tempfile
import time
import tracemalloc
import zlib
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from kdtree import kdtr

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {
    "bool": (1, np.dtype(np.bool_)),
    "u8": (2, np.dtype(np.uint8)),
    "i8": (3, np.dtype(np.int8)),
    "i32": (4, np.dtype(np.int32)),
    "i64": (5, np.dtype(np.int64)),
    "u64": (6, np.dtype(np.uint64)),
    "f16": (7, np.dtype(np.float16)),
    "bf16": (8, BFLOAT16),
    "f32": (9, np.dtype(np.float32)),
    "f64": (10, np.dtype(np.float64)),
}


@dataclass
class RawTensor:
    """A directory entry and its data. None means: what the format asks for."""

    name: bytes = b"t"
    code: int = 2
    shape: tuple[int, ...] = (3,)
    data: bytes = b"\1\2\3"
    offset: int | None = None
    nbytes: int | None = None
    crc32: int | None = None
    name_length: int | None = None
    ndim: int | None = None
    gap: int = 0


def raw_file(
    tensors=(),
    metadata=(),
    *,
    magic=b"KDTR",
    version=1,
    file_length=None,
    head_length=None,
    tensor_count=None,
    metadata_count=None,
    head_crc=None,
    head_extra=b"",
    padding=b"\0",
    tail=b"",
):
    """Encode tensors and (key, value) byte pairs, with any field overridden and every CRC right unless overridden."""

    def default(value, otherwise):
        return otherwise if value is None else value

    pairs = b"".join(struct.pack("<II", len(key), len(value)) + key + value for key, value in metadata)
    lengths = [24 + 8 * len(tensor.shape) + len(tensor.name) for tensor in tensors]
    end = real_head_length = 32 + len(pairs) + sum(lengths) + len(head_extra) + 4
    directory, data = b"", b""
    for tensor in tensors:
        pad = -end % 64 + tensor.gap
        directory += struct.pack(
            "<QQIHBB",
            default(tensor.offset, end + pad),
            default(tensor.nbytes, len(tensor.data)),
            default(tensor.crc32, zlib.crc32(tensor.data)),
            default(tensor.name_length, len(tensor.name)),
            tensor.code,
            default(tensor.ndim, len(tensor.shape)),
        )
        directory += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape) + tensor.name
        data += padding * pad + tensor.data
        end += pad + len(tensor.data)
    head = struct.pack(
        "<4sIQQII",
        magic,
        version,
        default(file_length, end + len(tail)),
        default(head_length, real_head_length),
        default(tensor_count, len(tensors)),
        default(metadata_count, len(metadata)),
    )
    head += pairs + directory + head_extra
    return head + struct.pack("<I", default(head_crc, zlib.crc32(head))) + data + tail


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="kdtr-")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def load_bytes(content: bytes) -> kdtr.Kdtr:
    """Load a file with this content."""
    with temporary_folder() as folder:
        path = Path(folder, "x.kdtr")
        path.write_bytes(content)
        return kdtr.load(path)


def save_bytes(tensors, metadata=None) -> bytes:
    """Return the content of the file that `save` writes."""
    with temporary_folder() as folder:
        path = Path(folder, "x.kdtr")
        kdtr.save(path, tensors, metadata)
        return path.read_bytes()


def verdict(content: bytes) -> str:
    """Return "refused", or "good" and all that the file says, as kdtr_verdict.cpp prints it."""
    with temporary_folder() as folder:
        path = Path(folder, "x.kdtr")
        path.write_bytes(content)
        try:
            tensors, metadata = kdtr.load(path)
            entries = kdtr.inspect(path).tensors
        except kdtr.KdtrError:
            return "refused"
    words = ["good"]
    for entry, array in zip(entries, tensors.values(), strict=True):
        shape = "x".join(map(str, array.shape))
        data = array.tobytes()
        code = DTYPES[entry.dtype][0]
        words.append(f"{entry.name.encode().hex()}:{code}:{shape}:{entry.offset}:{len(data)}:{zlib.crc32(data)}")
    words += [f"{key.encode().hex()}={value.encode().hex()}" for key, value in metadata.items()]
    return " ".join(words)


def equal_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Tell whether two arrays have the same dtype but for byte order, the same shape and the same bits."""
    native = right.dtype.newbyteorder("=")
    same_type = left.dtype.newbyteorder("=") == native and left.shape == right.shape
    return same_type and bits(left) == bits(right)


def bits(array: np.ndarray) -> bytes:
    """Return the elements in C order, most significant byte first."""
    planes = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.itemsize)
    big = array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big")
    return (planes if big else planes[:, ::-1]).tobytes()


def measure(folder: Path) -> dict[str, tuple[str, float, int]]:
    """Return the outcome, the seconds (best of three) and the peak bytes of `load` for every file of a folder."""
    outcomes = {}
    for path in sorted(folder.iterdir()):
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            try:
                kdtr.load(path)
                outcome = "good"
            except Exception as error:
                outcome = type(error).__name__
            seconds.append(time.perf_counter() - start)
        tracemalloc.start()
        try:
            kdtr.load(path)
        except Exception:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        outcomes[path.name] = (outcome, min(seconds), peak)
    return outcomes


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
