"""The bytes of a KDTR head: header, metadata, directory and their CRC. docs/kdtr.md is the definition.

Nothing here touches a file or an array. The writer and the reader share every check, so what one refuses the other
refuses too.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = [
    "ALIGNMENT",
    "DTYPES",
    "MAX_COUNT",
    "MAX_HEAD",
    "MAX_NAME",
    "MAX_NDIM",
    "MAX_SIZE",
    "MAX_VALUE",
    "MIN_FILE",
    "VERSION",
    "KdtrError",
    "Listing",
    "TensorEntry",
    "aligned",
    "decode_head",
    "encode_head",
    "place",
]

MAGIC = b"KDTR"
VERSION = 1
ALIGNMENT = 64
MAX_HEAD = 1 << 24
MAX_COUNT = 1 << 16
MAX_NAME = 1 << 10
MAX_VALUE = 1 << 20
MAX_NDIM = 8
MAX_SIZE = (1 << 63) - 1

HEADER = struct.Struct("<4sIQQII")
PAIR = struct.Struct("<II")
ENTRY = struct.Struct("<QQIHBB")
CRC = struct.Struct("<I")
MIN_FILE = HEADER.size + CRC.size

DTYPES = {
    "bool": (1, 1),
    "u8": (2, 1),
    "i8": (3, 1),
    "i32": (4, 4),
    "i64": (5, 8),
    "u64": (6, 8),
    "f16": (7, 2),
    "bf16": (8, 2),
    "f32": (9, 4),
    "f64": (10, 8),
}
"""The code and the item size in bytes of each dtype."""

_DTYPE_OF_CODE = {code: dtype for dtype, (code, _) in DTYPES.items()}


class KdtrError(ValueError):
    """A file is not a valid KDTR file, or a value cannot be stored in one."""


class TensorEntry(NamedTuple):
    """One directory entry: where a tensor lies in the file and how to read it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    crc32: int


class Listing(NamedTuple):
    """What the head of a file says. Lengths are in bytes; tensors are in file order."""

    version: int
    file_length: int
    head_length: int
    tensors: tuple[TensorEntry, ...]
    metadata: dict[str, str]


def aligned(position: int) -> int:
    """Round up to the next multiple of 64."""
    return -(-position // ALIGNMENT) * ALIGNMENT


def tensor_nbytes(name: str, dtype: str, shape: Sequence[int]) -> int:
    """Return the data length in bytes; refuse a shape that a signed 64-bit size cannot hold, also beside a zero."""
    if len(shape) > MAX_NDIM:
        raise KdtrError(f"tensor {name!r} has {len(shape)} dimensions, at most {MAX_NDIM} are allowed")
    nonzero = DTYPES[dtype][1]
    for size in shape:
        nonzero *= size or 1
        if nonzero > MAX_SIZE:
            raise KdtrError(f"tensor {name!r} has shape {tuple(shape)} of {dtype}, at most 2**63 - 1 bytes are allowed")
    return 0 if 0 in shape else nonzero


def encode_text(text: object, limit: int, what: str) -> bytes:
    """Return the UTF-8 bytes of a name, key or value."""
    if not isinstance(text, str):
        raise KdtrError(f"{what} is {type(text).__name__}, a str is needed")
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise KdtrError(f"{what} has no UTF-8 form: {error.reason} at character {error.start}") from None
    check_text(data, limit, what)
    return data


def check_text(data: bytes, limit: int, what: str) -> str:
    """Return the text of UTF-8 bytes that keep the rules of names, keys and values."""
    if len(data) > limit:
        raise KdtrError(f"{what} has {len(data)} bytes, at most {limit} are allowed")
    if 0 in data:
        raise KdtrError(f"{what} holds a NUL at byte {data.index(0)}, none is allowed")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise KdtrError(f"{what} is not valid UTF-8: {error.reason} at byte {error.start}") from None


def check_limits(tensor_count: int, metadata_count: int, head_length: int, file_length: int) -> None:
    """Refuse counts and lengths past the limits of the format."""
    for what, count, limit in (
        ("tensor count", tensor_count, MAX_COUNT),
        ("metadata count", metadata_count, MAX_COUNT),
        ("head length", head_length, MAX_HEAD),
        ("file length", file_length, MAX_SIZE),
    ):
        if count > limit:
            raise KdtrError(f"{what} is {count}, at most {limit} is allowed")


def place(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]) -> Listing:
    """Give every tensor (name, dtype, shape) its only legal position. The CRCs are 0 until the data is written."""
    tensors = list(tensors)
    head_length = MIN_FILE
    for name, _, shape in tensors:
        encoded = encode_text(name, MAX_NAME, f"tensor name {name!r}")
        if not encoded:
            raise KdtrError("a tensor name is empty, at least one character is needed")
        head_length += ENTRY.size + 8 * len(shape) + len(encoded)
    for key, value in metadata.items():
        encoded = encode_text(key, MAX_NAME, f"metadata key {key!r}")
        if not encoded:
            raise KdtrError("a metadata key is empty, at least one character is needed")
        head_length += PAIR.size + len(encoded) + len(encode_text(value, MAX_VALUE, f"value of metadata key {key!r}"))
    entries = []
    end = head_length
    for name, dtype, shape in tensors:
        nbytes = tensor_nbytes(name, dtype, shape)
        offset = aligned(end)
        end = offset + nbytes
        entries.append(TensorEntry(name, dtype, shape, offset, nbytes, 0))
    check_limits(len(entries), len(metadata), head_length, end)
    ordered = {key: metadata[key] for key in sorted(metadata)}
    return Listing(VERSION, end, head_length, tuple(entries), ordered)


def encode_head(listing: Listing) -> bytes:
    """Return the head of a listing that `place` made."""
    parts = [
        HEADER.pack(
            MAGIC,
            listing.version,
            listing.file_length,
            listing.head_length,
            len(listing.tensors),
            len(listing.metadata),
        )
    ]
    for key, value in listing.metadata.items():
        pair = key.encode(), value.encode()
        parts += PAIR.pack(*map(len, pair)), *pair
    for name, dtype, shape, offset, nbytes, crc32 in listing.tensors:
        encoded = name.encode()
        parts.append(ENTRY.pack(offset, nbytes, crc32, len(encoded), DTYPES[dtype][0], len(shape)))
        parts += (struct.pack(f"<{len(shape)}Q", *shape), encoded)
    head = b"".join(parts)
    return head + CRC.pack(zlib.crc32(head))


class _Cursor:
    """Read the head from left to right and never past its end."""

    def __init__(self, head: memoryview, position: int) -> None:
        self.head = head
        self.position = position

    @property
    def left(self) -> int:
        return len(self.head) - self.position

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise KdtrError(f"{what} needs {count} bytes, the head has {self.left} left")
        self.position += count
        return bytes(self.head[self.position - count : self.position])

    def name(self, length: int, what: str) -> str:
        if not 1 <= length <= MAX_NAME:
            raise KdtrError(f"{what} has {length} bytes, 1 to {MAX_NAME} are needed")
        return check_text(self.take(length, what), MAX_NAME, what)

    def value(self, length: int, what: str) -> str:
        if length > MAX_VALUE:
            raise KdtrError(f"{what} has {length} bytes, at most {MAX_VALUE} are allowed")
        return check_text(self.take(length, what), MAX_VALUE, what)


def decode_head(data: memoryview) -> Listing:
    """Read and check the head of a whole file; the tensor data is not touched."""
    if len(data) < MIN_FILE:
        raise KdtrError(f"the file has {len(data)} bytes, at least {MIN_FILE} are needed")
    magic, version, file_length, head_length, tensor_count, metadata_count = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise KdtrError(f"the magic is {magic!r}, {MAGIC!r} is needed")
    if version != VERSION:
        raise KdtrError(f"the version is {version}, {VERSION} is needed")
    if file_length != len(data):
        raise KdtrError(f"the header says {file_length} bytes, the file has {len(data)}")
    if not MIN_FILE <= head_length <= file_length:
        raise KdtrError(f"head length is {head_length}, {MIN_FILE} to {file_length} are needed")
    check_limits(tensor_count, metadata_count, head_length, file_length)
    body_length = head_length - CRC.size
    (stored,) = CRC.unpack_from(data, body_length)
    if stored != (computed := zlib.crc32(data[:body_length])):
        raise KdtrError(f"the head has CRC-32 {computed:08x}, the file says {stored:08x}")

    cursor = _Cursor(data[:body_length], HEADER.size)
    metadata = _decode_metadata(cursor, metadata_count)
    tensors = _decode_directory(cursor, tensor_count, head_length, file_length)
    if cursor.left:
        raise KdtrError(f"the head has {cursor.left} bytes after its last entry, none are allowed")
    end = tensors[-1].offset + tensors[-1].nbytes if tensors else head_length
    if end != file_length:
        raise KdtrError(f"the file has {file_length - end} bytes after its last tensor, none are allowed")
    return Listing(version, file_length, head_length, tensors, metadata)


def _decode_metadata(cursor: _Cursor, count: int) -> dict[str, str]:
    metadata: dict[str, str] = {}
    previous = ""
    for index in range(count):
        key_length, value_length = PAIR.unpack(cursor.take(PAIR.size, f"metadata pair {index}"))
        key = cursor.name(key_length, f"metadata key {index}")
        if key <= previous:
            raise KdtrError(f"metadata key {key!r} follows {previous!r}, keys must be unique and in ascending order")
        metadata[key] = cursor.value(value_length, f"value of metadata key {key!r}")
        previous = key
    return metadata


def _decode_directory(cursor: _Cursor, count: int, head_length: int, file_length: int) -> tuple[TensorEntry, ...]:
    tensors: dict[str, TensorEntry] = {}
    end = head_length
    for index in range(count):
        fields = ENTRY.unpack(cursor.take(ENTRY.size, f"directory entry {index}"))
        offset, nbytes, crc32, name_length, code, ndim = fields
        if ndim > MAX_NDIM:
            raise KdtrError(f"tensor {index} has {ndim} dimensions, at most {MAX_NDIM} are allowed")
        shape = struct.unpack(f"<{ndim}Q", cursor.take(8 * ndim, f"shape of tensor {index}"))
        name = cursor.name(name_length, f"name of tensor {index}")
        if name in tensors:
            raise KdtrError(f"tensor name {name!r} comes twice, names must be unique")
        if code not in _DTYPE_OF_CODE:
            raise KdtrError(f"tensor {name!r} has dtype code {code}, 1 to {len(DTYPES)} are needed")
        dtype = _DTYPE_OF_CODE[code]
        if nbytes != (needed := tensor_nbytes(name, dtype, shape)):
            raise KdtrError(f"tensor {name!r} says {nbytes} bytes, {dtype} of shape {shape} needs {needed}")
        if offset != aligned(end):
            raise KdtrError(f"tensor {name!r} has offset {offset}, {aligned(end)} is needed")
        end = offset + nbytes
        if end > file_length:
            raise KdtrError(f"tensor {name!r} ends at byte {end}, the file has {file_length}")
        tensors[name] = TensorEntry(name, dtype, shape, offset, nbytes, crc32)
    return tuple(tensors.values())
