import doctest
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from kdtr_files import DTYPES, save_bytes

import kdtree
from kdtree import convert, files, kdtr, kdtr_layout

PACKAGE = Path(kdtree.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "kdtr.md"


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return text


def test_the_hex_dump_of_the_page_is_the_file():
    content = save_bytes(
        {"depth": np.array([0, 1, 1], np.int32), "mask": np.array([[True, False]])},
        {"unit": "tokens"},
    )
    lines = []
    for start in range(0, len(content), 16):
        row = content[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {text}\n")
    assert block("hexdump") == "".join(lines)


def test_the_tables_of_the_page_are_those_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+) \| [^|]+ \|$", page.split("## Dtypes")[1], re.MULTILINE)
    assert {name: (int(code), int(size)) for code, name, size in rows} == kdtr_layout.DTYPES
    assert {name: (code, dtype.itemsize) for name, (code, dtype) in DTYPES.items()} == kdtr_layout.DTYPES
    limits = page.split("## Limits")[1].split("## How")[0]
    header = (PACKAGE / "include" / "kdtr.h").read_text(encoding="utf-8")
    for limit, name, shift in (
        (kdtr_layout.MAX_HEAD, "max_head", 24),
        (kdtr_layout.MAX_COUNT, "max_count", 16),
        (kdtr_layout.MAX_NAME, "max_name", 10),
        (kdtr_layout.MAX_VALUE, "max_value", 20),
    ):
        assert limit == 1 << shift
        assert f"{limit:,}" in limits
        assert f"{name} = std::uint64_t{{1}} << {shift};" in header
    assert f"ndim | {kdtr_layout.MAX_NDIM} |" in limits
    assert f"max_ndim = {kdtr_layout.MAX_NDIM};" in header
    assert f"{zlib.crc32(b'123456789'):08x}" in page


def test_the_python_and_cpp_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(block("python"), {})
    assert capsys.readouterr().out == "[0 1 1] tokens\ndepth i32 (3,) 12\nmask bool (1, 2) 2\n"
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed: the C++ of the page is not run")
    Path("example.cpp").write_text(block("cpp"), encoding="utf-8")
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *strict, f"-I{PACKAGE / 'include'}", "example.cpp", "-o", "example"], check=True)
    assert subprocess.run(["./example"], capture_output=True, text=True, check=True).stdout == "0 1 1 tokens\n"
    with Path("tree.kdtr").open("r+b") as file:
        file.truncate(200)
    broken = subprocess.run(["./example"], capture_output=True, text=True, check=False)
    assert (broken.returncode, broken.stderr) == (1, "the header's file length is not the file's length\n")


@pytest.mark.parametrize("module", [convert, files, kdtr], ids=lambda module: module.__name__)
def test_the_doctests_hold_and_name_real_tests(module):
    results = doctest.testmod(module)
    assert results.failed == 0
    assert results.attempted > 0
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_kdtr_*.py"))
    named = re.findall(r"\btest_\w+", Path(module.__file__).read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_ml_dtypes_is_imported_only_for_bfloat16(tmp_path):
    program = (
        "import sys, numpy as np; from kdtree import kdtr; "
        "kdtr.save('x.kdtr', {'a': np.ones(3)}); kdtr.load('x.kdtr'); kdtr.inspect('x.kdtr'); "
        "print(sorted({'ml_dtypes', 'safetensors', 'numba'} & set(sys.modules)))"
    )
    import sys

    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
