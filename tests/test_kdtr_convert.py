import json
import os
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from kdtr_files import DTYPES, equal_bits, names_in, temporary_folder
from kdtr_strategies import arrays, metadata_maps, tensor_maps

from kdtree import kdtr
from kdtree.convert import convert

bounded = settings(deadline=None, max_examples=50)


def safetensors_bytes(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@bounded
@given(tensor_maps(layouts=False), metadata_maps)
def test_safetensors_names_values_and_metadata_are_kept(tensors, metadata):
    tensors.pop("__metadata__", None)
    with temporary_folder() as folder:
        safetensors.numpy.save_file(tensors, f"{folder}/x.safetensors", metadata or None)
        assert convert(f"{folder}/x.safetensors", f"{folder}/x.kdtr") == {}
        loaded = kdtr.load(f"{folder}/x.kdtr")
    assert list(loaded.tensors) == sorted(tensors)
    assert loaded.metadata == metadata
    assert all(equal_bits(loaded.tensors[name], array) for name, array in tensors.items())


@bounded
@given(arrays(), arrays(layouts=False))
def test_npz_names_and_values_are_kept(first, second):
    # np.savez has no bfloat16: it writes two raw bytes, which are refused.
    tensors = {name: array for name, array in [("b/1", first), ("µ", second)] if array.dtype != ml_dtypes.bfloat16}
    with temporary_folder() as folder:
        for write in (np.savez, np.savez_compressed):
            write(f"{folder}/x.npz", **tensors)
            assert convert(f"{folder}/x.npz", f"{folder}/x.kdtr") == {}
            loaded = kdtr.load(f"{folder}/x.kdtr")
            assert list(loaded.tensors) == list(tensors)
            assert loaded.metadata == {}
            assert all(equal_bits(loaded.tensors[name], array) for name, array in tensors.items())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_from_safetensors(tmp_path, dtype):
    array = np.array([[0, 1], [1, 0]]).astype(DTYPES[dtype][1])
    safetensors.numpy.save_file({"t": array}, tmp_path / "x.safetensors")
    convert(tmp_path / "x.safetensors", tmp_path / "x.kdtr")
    assert kdtr.inspect(tmp_path / "x.kdtr").tensors[0].dtype == dtype
    assert equal_bits(kdtr.load(tmp_path / "x.kdtr").tensors["t"], array)


@pytest.mark.parametrize(("narrow", "wide"), [("int16", "int32"), ("uint16", "int32"), ("uint32", "int64")])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_widening_keeps_every_value_and_is_reported(tmp_path, narrow, wide, suffix):
    limits = np.iinfo(narrow)
    tensors = {"edge": np.array([limits.min, 0, limits.max], narrow), "same": np.arange(3)}
    write = np.savez if suffix == ".npz" else lambda path, **kw: safetensors.numpy.save_file(kw, path)
    source, destination = tmp_path / f"x{suffix}", tmp_path / "x.kdtr"
    write(source, **tensors)
    with pytest.raises(kdtr.KdtrError, match=f"tensor 'edge' has dtype {narrow}; widen=True stores it as {wide}"):
        convert(source, destination)
    assert not destination.exists()
    assert convert(source, destination, widen=True) == {"edge": narrow}
    loaded = kdtr.load(destination).tensors
    assert loaded["edge"].dtype == wide
    assert loaded["edge"].tolist() == [limits.min, 0, limits.max]
    assert loaded["same"].dtype == np.int64


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("bomb-went-off",)


def test_a_pickle_is_refused_without_being_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", fine=np.zeros(2), bomb=np.array([Bomb()], object))
    with pytest.raises(kdtr.KdtrError, match=r"x\.npz: tensor 'bomb': Object arrays cannot be loaded"):
        convert("x.npz", "x.kdtr")
    assert names_in(tmp_path) == ["x.npz"]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, np.complex64),
        np.array(["a"]),
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "f4")]),
        np.zeros(2, ml_dtypes.bfloat16),
    ],
    ids=lambda array: str(array.dtype),
)
def test_an_npz_dtype_outside_the_format_is_refused_by_name(tmp_path, array):
    np.savez(tmp_path / "x.npz", bad=array)
    with pytest.raises(kdtr.KdtrError, match=r"x\.npz: tensor 'bad' has dtype"):
        convert(tmp_path / "x.npz", tmp_path / "x.kdtr", widen=True)
    assert names_in(tmp_path) == ["x.npz"]


@pytest.mark.parametrize(("dtype", "nbytes"), [("F8_E4M3", 2), ("F8_E5M2", 2), ("C64", 16), ("F4", 1)])
def test_a_safetensors_dtype_outside_the_format_is_refused_by_name(tmp_path, dtype, nbytes):
    header = {"bad": {"dtype": dtype, "shape": [2], "data_offsets": [0, nbytes]}}
    (tmp_path / "x.safetensors").write_bytes(safetensors_bytes(header, bytes(nbytes)))
    with pytest.raises(kdtr.KdtrError, match=rf"x\.safetensors: tensor 'bad' has dtype {dtype}"):
        convert(tmp_path / "x.safetensors", tmp_path / "x.kdtr", widen=True)
    assert names_in(tmp_path) == ["x.safetensors"]


def good_npz(folder):
    path = folder / "good.npz"
    np.savez(path, a=np.arange(4), b=np.ones((2, 2)))
    content = path.read_bytes()
    path.unlink()
    return content


def npz_member(folder, name, content, times=1):
    path = folder / "made.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for _ in range(times):
            archive.writestr(name, content)
    content = path.read_bytes()
    path.unlink()
    return content


def npy(shape, data=b"", descr="<f4"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


MALFORMED_NPZ = {
    "empty": lambda folder: b"",
    "not a zip": lambda folder: b"PK\3\4 but no more",
    "cut": lambda folder: good_npz(folder)[:-30],
    "front cut": lambda folder: good_npz(folder)[40:],
    "flipped data": lambda folder: good_npz(folder).replace(b"\x80\x3f", b"\x80\x3e").replace(b"\3\0\0\0", b"\4\0\0\0"),
    "not an array": lambda folder: npz_member(folder, "readme.txt", b"text"),
    "an empty member": lambda folder: npz_member(folder, "a.npy", b""),
    "garbage in a member": lambda folder: npz_member(folder, "a.npy", b"\x93NUMPY\x01\x00\xff\xff garbage"),
    "a header that is code": lambda folder: npz_member(folder, "a.npy", npy("(__import__('os').getpid(),)")),
    "too little data": lambda folder: npz_member(folder, "a.npy", npy("(3,)", bytes(8))),
    "too much data": lambda folder: npz_member(folder, "a.npy", npy("(3,)", bytes(16))),
    "a shape of 2^60": lambda folder: npz_member(folder, "a.npy", npy(f"({1 << 60},)", bytes(8))),
    "a shape that wraps": lambda folder: npz_member(folder, "a.npy", npy(f"({1 << 32}, {1 << 32})", bytes(8))),
    "a negative shape": lambda folder: npz_member(folder, "a.npy", npy("(-1,)", bytes(8))),
    "an empty name": lambda folder: npz_member(folder, ".npy", npy("(2,)", bytes(8))),
}
MALFORMED_SAFETENSORS = {
    "empty": b"",
    "header length 2^63": struct.pack("<Q", 1 << 63) + b"{}",
    "not JSON": safetensors_bytes(b"{not json"),
    "data cut": safetensors_bytes({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(7)),
    "end before begin": safetensors_bytes({"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, bytes(8)),
    "shape and offsets disagree": safetensors_bytes(
        {"t": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)
    ),
    "shape wraps": safetensors_bytes(
        {"t": {"dtype": "F32", "shape": [1 << 32, 1 << 32], "data_offsets": [0, 8]}}, bytes(8)
    ),
    "unknown dtype": safetensors_bytes({"t": {"dtype": "X9", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "an empty name": safetensors_bytes({"": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "a NUL in a name": safetensors_bytes({"a\0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "nine dimensions": safetensors_bytes({"t": {"dtype": "U8", "shape": [1] * 9, "data_offsets": [0, 1]}}, bytes(1)),
    "a bool of 2": safetensors_bytes({"t": {"dtype": "BOOL", "shape": [1, 0], "data_offsets": [0, 1]}}, b"\2"),
}


@pytest.mark.parametrize(
    "case", [f"{name}.npz" for name in MALFORMED_NPZ] + [f"{n}.safetensors" for n in MALFORMED_SAFETENSORS]
)
def test_a_malformed_source_is_refused_and_writes_nothing(tmp_path, case):
    name, suffix = case.rsplit(".", 1)
    content = MALFORMED_NPZ[name](tmp_path) if suffix == "npz" else MALFORMED_SAFETENSORS[name]
    source, destination = tmp_path / f"x.{suffix}", tmp_path / "x.kdtr"
    source.write_bytes(content)
    destination.write_bytes(b"old")
    with pytest.raises(kdtr.KdtrError, match=rf"x\.{suffix}: "):
        convert(source, destination)
    assert destination.read_bytes() == b"old"
    assert names_in(tmp_path) == sorted([source.name, destination.name])


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_in_an_npz_is_refused(tmp_path):
    (tmp_path / "x.npz").write_bytes(npz_member(tmp_path, "a.npy", npy("(2,)", bytes(8)), times=2))
    with pytest.raises(kdtr.KdtrError, match="'a' comes twice"):
        convert(tmp_path / "x.npz", tmp_path / "x.kdtr")


def test_other_paths_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(1))
    (tmp_path / "folder.npz").mkdir()
    for source, destination, error in (
        ("x.txt", "x.kdtr", kdtr.KdtrError),
        ("x.npz", "x.npz", kdtr.KdtrError),
        ("folder.npz", "x.kdtr", kdtr.KdtrError),
        ("missing.npz", "x.kdtr", FileNotFoundError),
        ("missing.safetensors", "x.kdtr", FileNotFoundError),
        ("x.npz", "missing/x.kdtr", FileNotFoundError),
    ):
        with pytest.raises(error):
            convert(tmp_path / source, tmp_path / destination)
    assert names_in(tmp_path) == ["folder.npz", "x.npz"]
