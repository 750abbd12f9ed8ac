"""Makers of good and bad KDTR files. `raw_file` is a second encoder, written from docs/kdtr.md alone.

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


GOOD_TENSORS = (
    RawTensor(b"mask", 1, (2, 2), b"\1\0\0\1"),
    RawTensor(b"scale", 9, (), struct.pack("<f", 0.5)),
    RawTensor("µ".encode(), 4, (0, 3), b""),
)
GOOD = raw_file(GOOD_TENSORS, [(b"a", b""), (b"unit", b"nats")])


def _hostile() -> dict[str, bytes]:
    def one(**fields):
        return raw_file([RawTensor(**fields)])

    def two(**fields):
        return raw_file([RawTensor(b"a"), RawTensor(b"b", **fields)])

    def text(data):
        return {
            f"name {data!r}": one(name=data),
            f"key {data!r}": raw_file(metadata=[(data, b"")]),
            f"value {data!r}": raw_file(metadata=[(b"k", data)]),
        }

    first = GOOD.index(b"\1\0\0\1")
    huge = 1 << 63
    files = {
        "an empty file": b"",
        "the magic alone": b"KDTR",
        "35 bytes": raw_file()[:35],
        "last byte cut": GOOD[:-1],
        "last tensor cut": raw_file([RawTensor(b"a"), RawTensor(b"b")])[:128],
        "trailing byte": GOOD + b"\0",
        "trailing byte that the header counts": raw_file(GOOD_TENSORS, tail=b"\0"),
        "trailing 64 bytes that the header counts": raw_file(GOOD_TENSORS, tail=bytes(64)),
        "trailing bytes after no tensor": raw_file(tail=bytes(28)),
        "wrong magic": raw_file(GOOD_TENSORS, magic=b"KDTS"),
        "lower case magic": raw_file(GOOD_TENSORS, magic=b"kdtr"),
        "version 0": raw_file(GOOD_TENSORS, version=0),
        "version 2": raw_file(GOOD_TENSORS, version=2),
        "version 99": raw_file(GOOD_TENSORS, version=99),
        "version in big-endian": raw_file(GOOD_TENSORS, version=1 << 24),
        "head length 0": raw_file(GOOD_TENSORS, head_length=0),
        "head length 2": raw_file(GOOD_TENSORS, head_length=2),
        "head length 35": raw_file(GOOD_TENSORS, head_length=35),
        "head length 2^63": raw_file(GOOD_TENSORS, head_length=huge),
        "head length 2^64 - 1": raw_file(GOOD_TENSORS, head_length=2 * huge - 1),
        "head length is the file length": raw_file(GOOD_TENSORS, head_length=len(raw_file(GOOD_TENSORS))),
        "head length past the file": raw_file(GOOD_TENSORS, head_length=len(raw_file(GOOD_TENSORS)) + 1),
        "file length 0": raw_file(GOOD_TENSORS, file_length=0),
        "file length 2^63": raw_file(GOOD_TENSORS, file_length=huge),
        "file length 2^64 - 1": raw_file(GOOD_TENSORS, file_length=2 * huge - 1),
        "tensor count too small": raw_file(GOOD_TENSORS, tensor_count=2),
        "tensor count too large": raw_file(GOOD_TENSORS, tensor_count=4),
        "tensor count at its limit": raw_file(GOOD_TENSORS, tensor_count=1 << 16),
        "tensor count past its limit": raw_file(GOOD_TENSORS, tensor_count=(1 << 16) + 1),
        "tensor count 2^32 - 1": raw_file(GOOD_TENSORS, tensor_count=(1 << 32) - 1),
        "metadata count too large": raw_file(GOOD_TENSORS, metadata_count=1),
        "metadata count at its limit": raw_file(GOOD_TENSORS, metadata_count=1 << 16),
        "metadata count 2^32 - 1": raw_file(GOOD_TENSORS, metadata_count=(1 << 32) - 1),
        "head CRC 0": raw_file(GOOD_TENSORS, head_crc=0),
        "a byte after the directory": raw_file(GOOD_TENSORS, head_extra=b"\0"),
        "dtype code 0": one(code=0),
        "dtype code 11": one(code=11),
        "dtype code 255": one(code=255),
        "duplicate name": raw_file([RawTensor(b"a"), RawTensor(b"a")]),
        "name length past the head": one(name_length=1000),
        "name length past its limit": one(name=b"a" * 1025),
        "name length 2^16 - 1": one(name_length=65535),
        "ndim 9": one(shape=(1,) * 8 + (3,)),
        "ndim 65": one(shape=(1,) * 64 + (3,)),
        "ndim 255 without the sizes": one(ndim=255),
        "shape longer than the data": one(shape=(4,)),
        "shape shorter than the data": one(shape=(2,)),
        "shape says 4 MB, data is 4 bytes": one(code=9, shape=(1 << 20,), data=bytes(4)),
        "shape and length say 4 MB, data is 4 bytes": one(code=9, shape=(1 << 20,), data=bytes(4), nbytes=4 << 20),
        "length and shape disagree": one(nbytes=4),
        "length 2^64 - 1": one(nbytes=2 * huge - 1),
        "shape (2^32, 2^32) of f32": one(code=9, shape=(1 << 32, 1 << 32), data=b""),
        "shape (2^31, 2^32) of u8": one(shape=(1 << 31, 1 << 32), data=b""),
        "shape (2^62, 2) of u8 with its length": one(shape=(1 << 62, 2), data=b"", nbytes=huge),
        "shape (0, 2^63)": one(shape=(0, huge), data=b""),
        "shape (2^63, 0)": one(shape=(huge, 0), data=b""),
        "shape (0, 2^32, 2^32)": one(shape=(0, 1 << 32, 1 << 32), data=b""),
        "shape (0, 2^60) of f64": one(code=10, shape=(0, 1 << 60), data=b""),
        "shape (2^64 - 1)": one(shape=(2 * huge - 1,), data=b""),
        "offset 0": one(offset=0),
        "offset inside the head": one(offset=32),
        "offset unaligned": one(offset=65),
        "offset one step early": one(offset=64),
        "offset one step late": one(offset=192),
        "offset past the end": one(offset=1 << 20),
        "offset 2^63": one(offset=huge),
        "offset 2^64 - 64": one(offset=2 * huge - 64),
        "end before begin": one(offset=2 * huge - 64, nbytes=128, shape=(128,)),
        "data past the end": one(shape=(1000,), nbytes=1000),
        "an empty tensor past the end": raw_file([RawTensor(b"a"), RawTensor(b"b", data=b"", shape=(0,))])[:131],
        "overlap": two(offset=128),
        "a gap": two(gap=64),
        "tensors in the wrong order": raw_file([RawTensor(b"a", offset=192), RawTensor(b"b", offset=128)]),
        "padding of spaces": raw_file(GOOD_TENSORS, padding=b" "),
        "a padding byte flipped": GOOD[: first - 1] + b"\x80" + GOOD[first:],
        "data CRC wrong": one(crc32=0),
        "data CRC wrong for no data": one(shape=(0,), data=b"", crc32=1),
        "bool byte 2": one(code=1, data=b"\0\1\2"),
        "bool byte 255": one(code=1, data=b"\0\1\xff"),
        "no metadata key": raw_file(metadata=[(b"", b"v")]),
        "empty name": one(name=b""),
        "duplicate metadata key": raw_file(metadata=[(b"k", b"1"), (b"k", b"2")]),
        "metadata keys out of order": raw_file(metadata=[(b"b", b""), (b"a", b"")]),
        "metadata key too long": raw_file(metadata=[(b"k" * 1025, b"")]),
        "metadata value too long": raw_file(metadata=[(b"k", b"v" * ((1 << 20) + 1))]),
        "metadata lengths 2^32 - 1": raw_file(head_extra=b"\xff" * 8, metadata_count=1),
    }
    for data in (
        b"\0",
        b"a\0",
        b"\x80",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xc2",
        b"\xc2\x41",
        b"\xe0\x9f\xbf",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf0\x9f\x92",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xff",
    ):
        files |= text(data)
    return files


HOSTILE = _hostile()

FRIENDLY = {
    "nothing": raw_file(),
    "three tensors": GOOD,
    "metadata alone": raw_file(metadata=[(b"k", b"v")]),
    "an empty value": raw_file(metadata=[(b"k", b"")]),
    "the longest name": raw_file([RawTensor(b"a" * 1024)]),
    "the longest value": raw_file(metadata=[(b"k" * 1024, b"v" * (1 << 20))]),
    "eight dimensions": raw_file([RawTensor(shape=(1, 1, 1, 1, 1, 1, 1, 3))]),
    "empty with a wide size": raw_file([RawTensor(shape=(0, (1 << 63) - 1), data=b"")]),
    "empty with wide f64 sizes": raw_file([RawTensor(code=10, shape=(0, 1 << 30, 1 << 29), data=b"")]),
    "empty tensors only": raw_file([RawTensor(b"a", 9, (0,), b""), RawTensor(b"b", 1, (2, 0), b"")]),
    "edges of UTF-8": raw_file(
        [
            RawTensor(
                b"\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"
            )
        ]
    ),
    "keys in byte order": raw_file(
        metadata=[(b"A", b""), (b"a", b""), ("é".encode(), b""), ("￿".encode(), b""), ("😀".encode(), b"")]
    ),
}


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
