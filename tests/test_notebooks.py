"""The notebooks: text and outputs belong together, and every one of them runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("[0-9]*.py"))
ABSOLUTE = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|usr|var|opt|work|mnt|Users|private)/|\b[A-Z]:\\+(?:Users|Windows)\b"
)
ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")
LARGEST = 1_000_000  # bytes


def read(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(name):
    return [cell for cell in read(name).cells if cell.cell_type == "code"]


def outputs(name):
    return [output for cell in code_cells(name) for output in cell.outputs]


def without_pictures(name):
    """Return the notebook as text; base64 can spell anything."""
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)
    return json.dumps(notebook, ensure_ascii=False)


def test_the_notebooks_are_found():
    assert NAMES[:2] == ["01_tree_shapes", "02_accept_length_vs_budget"]
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_has_the_cells_of_its_source(name):
    command = [sys.executable, str(FOLDER / "execute.py"), "--check", name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{name}: runs in ")
    assert done.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_every_code_cell_was_executed_in_order(name):
    cells = code_cells(name)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_pictures_and_no_errors(name):
    assert {output.output_type for output in outputs(name)} <= {"stream", "display_data", "execute_result"}
    assert not [output.text for output in outputs(name) if output.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs(name)) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_holds_nothing_of_the_machine_or_the_moment(name):
    notebook = read(name)
    assert set(notebook.metadata) == {"jupytext", "kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert not [cell.metadata for cell in notebook.cells if cell.metadata]
    assert not [output.data for output in outputs(name) if "application/vnd.jupyter.widget-view+json" in str(output)]
    text = without_pictures(name)
    assert not ABSOLUTE.findall(text)
    assert not ADDRESS.findall(text)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_small(name):
    assert (FOLDER / f"{name}.ipynb").stat().st_size < LARGEST


def check_copy(folder, source, stored):
    """Check a notebook whose .py and .ipynb have these cells."""
    (folder / "execute.py").write_bytes((FOLDER / "execute.py").read_bytes())
    (folder / "01_copy.py").write_text("".join(f"# %%\n{cell}\n\n" for cell in source), encoding="utf-8")
    cells = [nbformat.v4.new_code_cell(cell) for cell in stored]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "01_copy.ipynb")
    command = [sys.executable, str(folder / "execute.py"), "--check", "01_copy"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


SLIDER = "from ipywidgets import interact\n_ = interact(lambda n: 1 / {}, n=(1, 3))"


def test_a_notebook_that_fits_and_runs_passes(tmp_path):
    cells = ["1 + 1", SLIDER.format("n")]
    done = check_copy(tmp_path, cells, cells)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("cell", ["1 / 0", SLIDER.format("0")], ids=["in a cell", "below a slider"])
def test_an_error_is_found(tmp_path, cell):
    done = check_copy(tmp_path, ["1 + 1", cell], ["1 + 1", cell])
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout


@pytest.mark.parametrize(
    ("stored", "said"), [(["1", "3"], "cell 1 (code) differs"), (["1"], "the .py has 2 cells, the .ipynb 1")]
)
def test_an_ipynb_that_does_not_fit_its_source_is_found(tmp_path, stored, said):
    done = check_copy(tmp_path, ["1", "2"], stored)
    assert done.returncode == 1
    assert said in done.stdout
