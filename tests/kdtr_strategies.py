"""Hypothesis strategies for KDTR: what can be saved, and files with edited fields and bytes."""

import struct
import zlib

import hypothesis.extra.numpy as npst
import numpy as np
from hypothesis import strategies as st
from kdtr_cases import FRIENDLY, GOOD
from kdtr_files import BFLOAT16, DTYPES, RawTensor, raw_file

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
metadata_maps = st.dictionaries(names, values, max_size=3)
shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@st.composite
def arrays(draw, layouts: bool = True):
    """Draw an array of any dtype with any bits; with `layouts` also any strides, order, byte order and write flag."""
    dtype = draw(st.sampled_from([dtype for _, dtype in DTYPES.values()]))
    shape = draw(shapes)
    count = int(np.prod(shape)) * dtype.itemsize
    data = draw(st.binary(min_size=count, max_size=count))
    raw = np.array(bytearray(data), np.uint8)
    array = (raw % 2 if dtype.kind == "b" else raw).view(dtype).reshape(shape).copy()
    if not layouts:
        return array
    if draw(st.booleans()):
        array = array.astype(array.dtype.newbyteorder(">")) if dtype != BFLOAT16 else array
    layout = draw(st.sampled_from(["C", "F", "reversed", "strided", "field", "broadcast", "unaligned"]))
    if layout == "F":
        array = array.T
    elif layout == "reversed" and array.ndim:
        array = array[::-1]
    elif layout == "strided" and array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    elif layout == "field":
        record = np.zeros(array.shape, [("byte", np.uint8), ("value", array.dtype)])
        record["value"] = array
        array = record["value"]
    elif layout == "broadcast":
        array = np.broadcast_to(array, (2, *array.shape))
    elif layout == "unaligned":
        store = np.zeros(array.nbytes + 1, np.uint8)
        odd = store[1:].view(array.dtype).reshape(array.shape)
        odd[...] = array
        array = odd
    if draw(st.booleans()):
        array = array.view()
        array.flags.writeable = False
    return array


def tensor_maps(layouts: bool = True):
    return st.dictionaries(names, arrays(layouts), max_size=4)


small = st.sampled_from([0, 1, 2, 3, 4, 7, 8, 24, 36, 63, 64, 65, 128, 192, 255])
wide = st.one_of(small, st.sampled_from([2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 1]))
texts = st.one_of(st.sampled_from([b"", b"a", b"b", b"\0", b"\xed\xa0\x80", "µ".encode()]), st.binary(max_size=4))

HEADER_EDITS = {
    "version": small,
    "file_length": wide,
    "head_length": wide,
    "tensor_count": small,
    "metadata_count": small,
    "head_crc": small,
    "head_extra": st.sampled_from([b"\0", bytes(8), bytes(24)]),
    "padding": st.sampled_from([b"\1", b" "]),
    "tail": st.sampled_from([b"\0", bytes(64)]),
    "metadata": st.lists(st.tuples(texts, texts), max_size=3),
}
TENSOR_EDITS = {
    "name": texts,
    "code": st.integers(0, 12),
    "shape": st.lists(wide, max_size=9).map(tuple),
    "data": st.binary(max_size=9),
    "offset": wide,
    "nbytes": wide,
    "crc32": small,
    "name_length": small,
    "ndim": small,
    "gap": st.sampled_from([1, 63, 64]),
}


@st.composite
def edited_fields(draw):
    """Draw a file with one or two fields changed and every CRC right again."""
    arrays_by_name = draw(tensor_maps(layouts=False))
    codes = {dtype: code for code, dtype in DTYPES.values()}
    tensors = [
        RawTensor(name.encode(), codes[array.dtype], array.shape, array.tobytes())
        for name, array in arrays_by_name.items()
    ]
    pairs = sorted((key.encode(), value.encode()) for key, value in draw(metadata_maps).items())
    header = {"metadata": pairs}
    for field in draw(st.lists(st.sampled_from([*TENSOR_EDITS, *HEADER_EDITS]), min_size=1, max_size=2)):
        if field in HEADER_EDITS:
            header[field] = draw(HEADER_EDITS[field])
        elif tensors:
            setattr(draw(st.sampled_from(tensors)), field, draw(TENSOR_EDITS[field]))
    return raw_file(tensors, **header)


@st.composite
def edited_bytes(draw):
    """Draw a good file with some bytes of the head changed and the head's CRC made right again."""
    content = bytearray(draw(st.sampled_from([GOOD, *FRIENDLY.values()])))
    (head_length,) = struct.unpack_from("<Q", content, 16)
    head_length = min(head_length, 2048)
    for _ in range(draw(st.integers(1, 3))):
        content[draw(st.integers(24, head_length - 5))] = draw(st.integers(0, 255))
    (head_length,) = struct.unpack_from("<Q", content, 16)
    if 36 <= head_length <= len(content):
        struct.pack_into("<I", content, head_length - 4, zlib.crc32(content[: head_length - 4]))
    return bytes(content)


edited_files = st.one_of(edited_fields(), edited_bytes())
