"""What the repository promises: layout, wheel, documents, docstrings."""

import doctest
import importlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kdtree

ROOT = Path(__file__).parents[1]
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
SOURCES = [path for path in TRACKED if path.startswith(("kdtree/", "reference/", "kernels/"))]
MODULES = sorted(
    ".".join(("kdtree" if not path.startswith("kdtree/") else "", *Path(path).with_suffix("").parts)).strip(".")
    for path in SOURCES
    if path.endswith(".py") and not path.endswith("__init__.py")
)
NEED_TORCH = {"kdtree.torch_drafter"}
DOCUMENTS = [path for path in TRACKED if path.endswith(".md")]


def test_the_three_folders_are_links_and_no_packages_of_their_own():
    for name in ("reference", "kernels", "data"):
        assert (ROOT / "kdtree" / name).is_symlink()
        assert (ROOT / "kdtree" / name).readlink() == Path("..", name)
        assert not list((ROOT / name).rglob("__init__.py"))


def test_the_top_level_is_the_one_of_the_design():
    folders = {path.split("/")[0] for path in TRACKED if "/" in path}
    assert folders == {".ci", "benchmarks", "data", "docs", "kdtree", "kernels", "notebooks", "reference", "tests"}


def test_a_wheel_holds_all_three_folders_as_files(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    expected = {path if path.startswith("kdtree/") else f"kdtree/{path}" for path in SOURCES}
    expected |= {f"kdtree/{path}" for path in TRACKED if path.startswith("data/") and not path.endswith(".py")}
    expected = {path for path in expected if not path.startswith("kdtree/data/train/")}
    expected -= {"kdtree/reference", "kdtree/kernels", "kdtree/data"}
    assert expected <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("kdtree/data/train")]


def test_an_installed_wheel_works_far_from_the_checkout(tmp_path):
    """Unpack the wheel and use it alone: the data and the kernels come with it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    code = (
        "import kdtree; print(kdtree.__file__); trace = kdtree.Trace.shipped('pilot_t05'); "
        "print(kdtree.replay(trace, 'ddtree', [64]).tau); kdtree.shipped.tiny_pair()"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout
    assert "4.1361" in done.stdout


def imported(name):
    if name in NEED_TORCH:
        pytest.importorskip("torch")
    return importlib.import_module(name)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_every_docstring_run(name):
    module = imported(name)
    result = doctest.testmod(module, extraglobs={"np": np})
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_and_what_it_exports(name):
    module = imported(name)
    assert module.__doc__
    assert set(module.__all__) <= set(dir(module))


def test_every_invariant_names_a_test_that_exists():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)\(", tests))
    named = {
        test
        for path in SOURCES
        if path.endswith(".py")
        for test in re.findall(r"\btest_\w+", (ROOT / path).read_text())
    }
    assert len(named) > 20
    assert named <= defined


def test_every_public_name_of_the_package_is_there():
    for name in kdtree.__all__:
        assert getattr(kdtree, name) is not None


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_of_every_document_runs(document, tmp_path):
    """The blocks of a page are one script: later ones may use what earlier ones made."""
    script = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_links_and_paths_of_every_document_lead_somewhere(document):
    text, folder = (ROOT / document).read_text(), (ROOT / document).parent
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (folder / link).exists(), link
    for path in re.findall(r"`((?:kdtree|reference|kernels|tests|data|docs|benchmarks)/[\w./]+\.\w+)`", text):
        assert (ROOT / path).exists(), path


def test_every_make_command_in_the_documents_is_a_target():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join((ROOT / document).read_text() for document in DOCUMENTS)
    used = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    assert {"demo", "test", "lint"} <= used <= targets


def shell(command, folder):
    """Run a command of the documents or the Makefile; they say `kdtree` or $(BIN)/kdtree."""
    command = command.replace("$(BIN)/", "")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


README_COMMANDS = re.findall(r"^(kdtree .*)", (ROOT / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", README_COMMANDS, ids=[command.split("  ")[0] for command in README_COMMANDS])
def test_the_commands_of_the_readme_run(command, tmp_path):
    assert shell(command, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == re.findall(r"--out (\S+)", command)


def test_make_demo_sweeps_the_shipped_trace_and_runs_the_shipped_pair(tmp_path):
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1)
    said = "".join(shell(line.strip().lstrip("@"), tmp_path) for line in recipe.splitlines())
    assert said.startswith("tiny_t05: ")
    assert "the shipped tiny-drafter" in said
    assert said.endswith("identical: yes\n")
    assert (tmp_path / "out" / "accept_length.png").read_bytes().startswith(b"\x89PNG")
    counted = re.search(r"target passes +(\d+) +(\d+) +(\d+)", said).groups()
    told = re.search(r"256 bytes in (\d+) passes.*?takes (\d+),", (ROOT / "README.md").read_text(), re.DOTALL).groups()
    assert counted == ("256", told[1], told[0])


def test_files_are_short():
    long = {
        path: lines
        for path in TRACKED
        if path.endswith((".py", ".h", ".cpp", ".cu"))
        and not path.startswith("notebooks/")
        and (lines := len((ROOT / path).read_text().splitlines())) > 300
    }
    assert long == {}
