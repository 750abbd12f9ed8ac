import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import kdtr_files
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdtr_cases import GOOD, GOOD_TENSORS, HOSTILE
from kdtr_files import RawTensor, load_bytes, raw_file, save_bytes, temporary_folder
from kdtr_strategies import edited_files

from kdtree import kdtr

bounded = settings(deadline=None, max_examples=300)


def refused(content: bytes) -> bool:
    try:
        load_bytes(content)
    except kdtr.KdtrError:
        return True
    return False


def test_every_truncation_is_refused():
    assert [length for length in range(len(GOOD)) if not refused(GOOD[:length])] == []


def test_every_single_bit_flip_is_refused():
    accepted = []
    for bit in range(8 * len(GOOD)):
        content = bytearray(GOOD)
        content[bit // 8] ^= 1 << bit % 8
        if not refused(bytes(content)):
            accepted.append(bit)
    assert accepted == []


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused(content):
    with pytest.raises(kdtr.KdtrError):
        load_bytes(content)


@pytest.mark.parametrize("options", [[], ["-O"]], ids=["python", "python -O"])
def test_hostile_files_are_refused_quickly_in_little_memory(tmp_path, options):
    names = list(HOSTILE)
    for index, name in enumerate(names):
        (tmp_path / str(index)).write_bytes(HOSTILE[name])
    command = [sys.executable, *options, kdtr_files.__file__, tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    outcomes = {names[int(index)]: outcome for index, outcome in json.loads(result.stdout).items()}
    assert len(outcomes) == len(HOSTILE)
    assert {name: kind for name, (kind, _, _) in outcomes.items() if kind != "KdtrError"} == {}
    assert {name: seconds for name, (_, seconds, _) in outcomes.items() if seconds >= 0.05} == {}
    assert {name: peak for name, (_, _, peak) in outcomes.items() if peak >= 10_000_000} == {}


def test_inspect_refuses_every_bad_head(tmp_path):
    data_only = {
        "padding of spaces",
        "a padding byte flipped",
        "data CRC wrong",
        "data CRC wrong for no data",
        "bool byte 2",
        "bool byte 255",
    }
    accepted = set()
    for name, content in HOSTILE.items():
        (tmp_path / "x.kdtr").write_bytes(content)
        try:
            kdtr.inspect(tmp_path / "x.kdtr")
            accepted.add(name)
        except kdtr.KdtrError:
            pass
    assert accepted == data_only


def test_a_head_past_its_limit_is_refused():
    pairs = [(b"%02d" % index, b"v" * (1 << 20)) for index in range(15)]
    room = (1 << 24) - 36 - 15 * (8 + 2 + (1 << 20)) - 8 - 2
    assert refused(raw_file(metadata=[*pairs, (b"99", b"v" * (room + 1))]))


@bounded
@given(edited_files)
def test_an_accepted_file_is_the_file_that_save_writes(content):
    try:
        loaded = load_bytes(content)
    except kdtr.KdtrError:
        return
    assert save_bytes(*loaded) == content


@bounded
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused(content, with_magic):
    assert refused(GOOD[:8] + content if with_magic else content)


def test_the_message_names_the_file_the_tensor_and_both_values(tmp_path):
    path = tmp_path / "x.kdtr"
    path.write_bytes(raw_file([RawTensor(b"depth", shape=(4,))]))
    with pytest.raises(kdtr.KdtrError) as caught:
        kdtr.load(path)
    assert str(caught.value) == f"{path}: tensor 'depth' says 3 bytes, u8 of shape (4,) needs 4"


@pytest.mark.parametrize("function", [kdtr.load, kdtr.inspect])
def test_what_is_not_a_regular_file_is_refused_without_waiting(tmp_path, function):
    with pytest.raises(FileNotFoundError):
        function(tmp_path / "missing.kdtr")
    with pytest.raises((OSError, kdtr.KdtrError)):
        function(tmp_path)
    (tmp_path / "empty.kdtr").touch()
    with pytest.raises(kdtr.KdtrError, match="0 bytes, at least 36"):
        function(tmp_path / "empty.kdtr")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "fifo.kdtr")
        with pytest.raises(kdtr.KdtrError, match="regular file"):
            function(tmp_path / "fifo.kdtr")
    if Path("/dev/zero").exists():
        with pytest.raises(kdtr.KdtrError, match="regular file"):
            function("/dev/zero")


def test_a_file_is_closed_after_it_was_refused():
    with temporary_folder() as folder:
        path = Path(folder, "x.kdtr")
        path.write_bytes(raw_file(GOOD_TENSORS, version=2))
        descriptors = Path("/proc/self/fd")
        if not descriptors.exists():
            pytest.skip("open files can be counted on Linux only")
        gc.collect()
        before = len(list(descriptors.iterdir()))
        for _ in range(20):
            with pytest.raises(kdtr.KdtrError):
                kdtr.load(path)
        assert len(list(descriptors.iterdir())) <= before
