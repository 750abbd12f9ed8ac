import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from kdtr_cases import FRIENDLY, GOOD, HOSTILE
from kdtr_files import raw_file, save_bytes, verdict
from kdtr_strategies import edited_files, metadata_maps, tensor_maps

import kdtree

INCLUDE = Path(kdtree.__file__).parent / "include"
bounded = settings(deadline=None, max_examples=300)


class Reader:
    """The C++ reader as a running process that answers one line a file."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def verdict(self, content: bytes) -> str:
        self.process.stdin.write(struct.pack("<Q", len(content)) + content)
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode()
        assert line.endswith("\n"), "the C++ reader stopped: the sanitizer's report is on standard error"
        return line[:-1]

    def close(self) -> int:
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed: the C++ reader is not tested")
    program = tmp_path_factory.mktemp("cpp") / "kdtr_verdict"
    source = Path(__file__).with_name("kdtr_verdict.cpp")
    strict = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([compiler, *strict, *sanitizers, f"-I{INCLUDE}", source, "-o", program], check=True)
    running = Reader(program)
    yield running
    assert running.close() == 0


def test_both_readers_agree_on_legal_files(reader):
    for name, content in FRIENDLY.items():
        assert reader.verdict(content) == verdict(content), name


def test_both_readers_refuse_every_hostile_file(reader):
    assert {name for name, content in HOSTILE.items() if reader.verdict(content) != "refused"} == set()


def test_the_cpp_reader_refuses_every_truncation_and_bit_flip(reader):
    flips = [bytearray(GOOD) for _ in range(8 * len(GOOD))]
    for bit, content in enumerate(flips):
        content[bit // 8] ^= 1 << bit % 8
    cuts = [GOOD[:length] for length in range(len(GOOD))]
    assert {reader.verdict(bytes(content)) for content in [*flips, *cuts]} == {"refused"}


def test_both_readers_agree_on_the_largest_head(reader):
    pairs = [(b"%02d" % index, b"v" * (1 << 20)) for index in range(15)]
    room = (1 << 24) - 36 - 15 * (8 + 2 + (1 << 20)) - 8 - 2
    assert reader.verdict(raw_file(metadata=[*pairs, (b"99", b"v" * room)])).startswith("good")
    assert reader.verdict(raw_file(metadata=[*pairs, (b"99", b"v" * (room + 1))])) == "refused"


@bounded
@given(tensors=tensor_maps(layouts=False), metadata=metadata_maps)
def test_both_readers_see_the_same_contents(reader, tensors, metadata):
    content = save_bytes(tensors, metadata)
    assert reader.verdict(content) == verdict(content) != "refused"


@bounded
@given(content=edited_files)
def test_both_readers_agree_on_edited_files(reader, content):
    assert reader.verdict(content) == verdict(content)
