"""Named KDTR files, good and bad, each as its bytes."""

import struct

from kdtr_files import RawTensor, raw_file

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
