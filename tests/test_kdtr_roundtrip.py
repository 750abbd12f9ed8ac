import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdtr_cases import FRIENDLY, GOOD_TENSORS
from kdtr_files import BFLOAT16, DTYPES, RawTensor, equal_bits, load_bytes, raw_file, save_bytes, temporary_folder
from kdtr_strategies import arrays, metadata_maps, tensor_maps

from kdtree import kdtr

bounded = settings(deadline=None, max_examples=100)


@bounded
@given(tensor_maps(), metadata_maps)
def test_what_is_saved_is_loaded_to_the_bit(tensors, metadata):
    loaded = load_bytes(save_bytes(tensors, metadata))
    assert list(loaded.tensors) == list(tensors)
    assert loaded.metadata == metadata
    for name, array in tensors.items():
        assert equal_bits(loaded.tensors[name], array), name


@bounded
@given(tensor_maps(), metadata_maps)
def test_the_same_input_gives_the_same_bytes(tensors, metadata):
    plain = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
    backwards = dict(reversed(metadata.items()))
    assert save_bytes(tensors, metadata) == save_bytes(plain, backwards)


@bounded
@given(tensor_maps(layouts=False), metadata_maps)
def test_a_second_encoder_gives_the_same_bytes(tensors, metadata):
    code = {dtype: code for code, dtype in DTYPES.values()}
    little = {name: array if sys.byteorder == "little" else array.byteswap() for name, array in tensors.items()}
    raw = [RawTensor(name.encode(), code[a.dtype], a.shape, little[name].tobytes()) for name, a in tensors.items()]
    pairs = sorted((key.encode(), value.encode()) for key, value in metadata.items())
    assert save_bytes(tensors, metadata) == raw_file(raw, pairs)


@bounded
@given(tensor_maps(layouts=False), st.randoms())
def test_tensors_keep_their_order(tensors, random):
    shuffled = list(tensors.items())
    random.shuffle(shuffled)
    assert list(load_bytes(save_bytes(dict(shuffled))).tensors) == [name for name, _ in shuffled]


@bounded
@given(arrays())
def test_saving_does_not_change_the_array(array):
    before = array.copy()
    flags, strides = array.flags.writeable, array.strides
    save_bytes({"t": array})
    assert equal_bits(array, before)
    assert (array.flags.writeable, array.strides) == (flags, strides)


@bounded
@given(tensor_maps())
def test_loaded_arrays_are_read_only_and_aligned(tensors):
    for array in load_bytes(save_bytes(tensors)).tensors.values():
        assert not array.flags.writeable
        assert array.flags.c_contiguous
        assert array.ctypes.data % 64 == 0 or array.size == 0
        with pytest.raises(ValueError):
            array.flags.writeable = True


@bounded
@given(tensor_maps(), metadata_maps)
def test_inspect_lists_what_load_returns(tensors, metadata):
    with temporary_folder() as folder:
        path = f"{folder}/x.kdtr"
        kdtr.save(path, tensors, metadata)
        listing, loaded = kdtr.inspect(path), kdtr.load(path)
    assert listing.version == 1
    assert listing.metadata == loaded.metadata
    assert [entry.name for entry in listing.tensors] == list(loaded.tensors)
    for entry in listing.tensors:
        array = loaded.tensors[entry.name]
        assert (entry.shape, entry.nbytes) == (array.shape, array.nbytes)
        assert DTYPES[entry.dtype][1] == array.dtype.newbyteorder("=")
        assert entry.offset % 64 == 0


@pytest.mark.parametrize("content", FRIENDLY.values(), ids=FRIENDLY)
def test_a_legal_file_is_loaded_and_saved_again_to_the_byte(content):
    assert save_bytes(*load_bytes(content)) == content


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        (np.float16, np.array([0x7C01, 0xFE55, 0x8000, 0x0001], np.uint16)),
        (np.float32, np.array([0x7F800001, 0xFFC12345, 0x80000000, 1], np.uint32)),
        (np.float64, np.array([0x7FF0000000000001, 0xFFF8000012345678, 1 << 63, 1], np.uint64)),
        (ml_dtypes.bfloat16, np.array([0x7F81, 0xFFC5, 0x8000, 0x0001], np.uint16)),
    ],
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_nan_payloads_signed_zeros_and_subnormals_keep_their_bits(dtype, bits, order):
    array = bits.astype(bits.dtype.newbyteorder(order)).view(np.dtype(dtype).newbyteorder(order))
    loaded = load_bytes(save_bytes({"t": array})).tensors["t"]
    assert (loaded.view(f"<u{bits.itemsize}") == bits).all()


def test_bytes_of_a_bool_view_are_stored_as_zero_and_one():
    odd = np.array([0, 1, 2, 255], np.uint8).view(bool)
    assert load_bytes(save_bytes({"t": odd})).tensors["t"].tobytes() == b"\0\1\1\1"


def test_a_memmap_is_saved_like_an_array(tmp_path):
    mapped = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=(3, 2))
    mapped[:] = 7
    assert equal_bits(load_bytes(save_bytes({"t": mapped})).tensors["t"], np.full((3, 2), 7, np.float32))


def test_the_loaded_arrays_keep_the_map_after_the_rest_is_gone(tmp_path):
    kdtr.save(tmp_path / "x.kdtr", {"a": np.arange(100_000), "b": np.ones(3, BFLOAT16)})
    row = kdtr.load(tmp_path / "x.kdtr").tensors["a"][50_000:]
    brain = kdtr.load(tmp_path / "x.kdtr").tensors["b"]
    (tmp_path / "x.kdtr").unlink()
    assert row[0] == 50_000
    assert row[-1] == 99_999
    assert (brain == 1).all()


def test_a_save_into_the_loaded_file_leaves_the_loaded_arrays_intact(tmp_path):
    path = tmp_path / "x.kdtr"
    kdtr.save(path, {"a": np.arange(100_000), "b": np.arange(7)})
    old = kdtr.load(path).tensors
    kdtr.save(path, {"a": old["a"][::-1], "c": old["b"]})
    new = kdtr.load(path).tensors
    assert (old["a"] == np.arange(100_000)).all()
    assert (new["a"] == np.arange(100_000)[::-1]).all()
    assert (new["c"] == np.arange(7)).all()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, np.int16),
        np.zeros(2, np.uint16),
        np.zeros(2, np.uint32),
        np.zeros(2, np.complex64),
        np.zeros(2, np.longdouble) if np.longdouble(0).itemsize > 8 else np.zeros(2, np.complex128),
        np.array([None, {}], object),
        np.array(["a"]),
        np.array([b"a"]),
        np.zeros(2, "V2"),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "m8[s]"),
        np.zeros(2, [("a", np.float32)]),
        np.array(["a"], np.dtypes.StringDType()),
        np.zeros(2, ml_dtypes.float8_e4m3fn),
        np.zeros(2, ml_dtypes.float8_e5m2),
        np.zeros(2, ml_dtypes.int4),
    ],
    ids=lambda array: str(array.dtype),
)
def test_an_unsupported_dtype_is_refused_by_name(array):
    with pytest.raises(kdtr.KdtrError, match=r"tensor 'bad one' has dtype .*, one of bool, u8, .* is needed"):
        save_bytes({"bad one": array})


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        (1, 2),
        3,
        1.5,
        None,
        "text",
        b"bytes",
        np.float32(1),
        np.ma.array([1.0, 2.0], mask=[0, 1]),
        np.eye(2).view(np.matrix),
        np.eye(2).view(type("Labelled", (np.ndarray,), {})),
        np.rec.array([(1,)], dtype=[("a", "i4")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_a_plain_array_is_refused_by_name(value):
    with pytest.raises(kdtr.KdtrError, match=f"tensor 't' is {type(value).__name__}, a plain numpy.ndarray is needed"):
        save_bytes({"t": value})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("a\0", "NUL at byte 1"),
        ("\ud800", "no UTF-8 form"),
        ("é" * 513, "1026 bytes, at most 1024"),
        (7, "int, a str is needed"),
        (b"a", "bytes, a str is needed"),
    ],
)
def test_a_bad_name_is_refused(name, reason):
    with pytest.raises(kdtr.KdtrError, match=f"tensor name .*{reason}"):
        save_bytes({name: np.zeros(1)})
    with pytest.raises(kdtr.KdtrError, match=f"metadata key .*{reason}"):
        save_bytes({}, {name: "value"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\0", "NUL at byte 1"),
        ("\udfff", "no UTF-8 form"),
        ("v" * ((1 << 20) + 1), "1048577 bytes, at most 1048576"),
        (7, "int, a str is needed"),
        (None, "NoneType, a str is needed"),
    ],
)
def test_a_bad_metadata_value_is_refused(value, reason):
    with pytest.raises(kdtr.KdtrError, match=f"value of metadata key 'k' .*{reason}"):
        save_bytes({}, {"k": value})


def test_save_keeps_the_limits_that_load_keeps():
    zero = np.zeros((), bool)
    with pytest.raises(kdtr.KdtrError, match="tensor 't' has 9 dimensions, at most 8"):
        save_bytes({"t": np.zeros((1,) * 9)})
    with pytest.raises(kdtr.KdtrError, match="tensor count is 65537, at most 65536"):
        save_bytes({str(index): zero for index in range((1 << 16) + 1)})
    with pytest.raises(kdtr.KdtrError, match="metadata count is 65537, at most 65536"):
        save_bytes({}, {str(index): "" for index in range((1 << 16) + 1)})
    with pytest.raises(kdtr.KdtrError, match=r"head length is .*, at most 16777216"):
        save_bytes({}, {str(index): "v" * (1 << 20) for index in range(16)})
    wide = np.broadcast_to(np.float64(0), (1 << 59,))
    with pytest.raises(kdtr.KdtrError, match=r"file length is .*, at most 9223372036854775807"):
        save_bytes({"a": wide, "b": wide})


def test_the_largest_legal_head_is_loaded():
    room = (1 << 24) - 36 - 15 * (8 + 2 + (1 << 20)) - 8 - 2
    metadata = {f"{index:02}": "v" * (1 << 20) for index in range(15)} | {"99": "v" * room}
    content = save_bytes({}, metadata)
    assert len(content) == 1 << 24
    assert load_bytes(content).metadata == metadata


def test_a_good_file_is_made_of_the_documented_parts():
    content = save_bytes(
        {
            "mask": np.array([[1, 0], [0, 1]], bool),
            "scale": np.array(0.5, np.float32),
            "µ": np.zeros((0, 3), np.int32),
        },
        {"unit": "nats", "a": ""},
    )
    assert content == raw_file(GOOD_TENSORS, [(b"a", b""), (b"unit", b"nats")])
