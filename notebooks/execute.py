"""Execute the notebooks: python notebooks/execute.py [--check] [NAME ...].

Each NN_topic.py (jupytext, percent format) is run and written to NN_topic.ipynb with its outputs. Nothing that differs
from run to run is kept: no times, no widget state, no random cell ids. Pictures are reduced to 256 colours. With
--check nothing is written; a notebook fails if the .ipynb does not have the cells of the .py, or if it does not run.
"""

import argparse
import asyncio
import hashlib
import os
import re
import sys
import time
import warnings
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from PIL import Image

from kdtree.files import atomic_write

__all__ = ["cells_differ", "execute", "main", "names", "read_ipynb", "read_source"]

FOLDER = Path(__file__).resolve().parent
PNG, VIEW = "image/png", "application/vnd.jupyter.widget-view+json"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal
WIDGET = "[a slider, when the notebook runs]"
STATE = "application/vnd.jupyter.widget-state+json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def names() -> list[str]:
    """Return the notebooks by name, in reading order."""
    return sorted(path.stem for path in FOLDER.glob("[0-9]*.py"))


def read_source(name: str) -> NotebookNode:
    """Return the cells of NAME.py, without outputs; a cell's id depends on what is in the cell alone."""
    notebook = jupytext.read(FOLDER / f"{name}.py", fmt="py:percent")
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
        seen[digest] = seen.get(digest, 0) + 1
        cell.metadata.pop("lines_to_next_cell", None)  # what the .py needs to keep its blank lines
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    notebook.metadata = NotebookNode(
        jupytext=NotebookNode(formats="ipynb,py:percent"),
        kernelspec=NotebookNode(KERNEL),
        language_info=NotebookNode(name="python"),
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def read_ipynb(name: str) -> NotebookNode:
    """Return NAME.ipynb."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def cells_differ(source: NotebookNode, stored: NotebookNode) -> str:
    """Say where two notebooks first have different cells, or return an empty string."""
    mine, theirs = ([(cell.cell_type, cell.source) for cell in notebook.cells] for notebook in (source, stored))
    for i, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            return f"cell {i} ({a[0]}) differs: the .py has {a[1][:60]!r}, the .ipynb {b[1][:60]!r}"
    return "" if len(mine) == len(theirs) else f"the .py has {len(mine)} cells, the .ipynb {len(theirs)}"


def execute(name: str) -> NotebookNode:
    """Run NAME.py in a fresh kernel, in the notebooks' folder, and return it with outputs that a rerun repeats."""
    notebook = read_source(name)
    with TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own libraries; the kernel has its own filters
        env = os.environ | {"IPYTHONDIR": scratch, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            resources={"metadata": {"path": str(FOLDER)}},
            record_timing=False,
            store_widget_state=True,  # sliders need it while they run
        )
        client.create_kernel_manager()
        if os.name == "posix":  # sockets in our folder, which no other user can reach, in place of open ports
            client.km.transport, client.km.ip = "ipc", f"{scratch}/kernel"
        asyncio.run(client.async_execute(env=env))
    refuse_failed_sliders(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata.pop("execution", None)
            cell.outputs = [settled(output) for output in cell.outputs]
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = NotebookNode(name="python")  # the kernel adds its version
    return notebook


def refuse_failed_sliders(notebook: NotebookNode) -> None:
    """Raise if what a slider draws failed: its error is kept in the widget, and the cell passes."""
    state = notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    for model in state.values():
        for output in model["state"].get("outputs", []):
            if output["output_type"] == "error":
                raise CellExecutionError("\n".join(output["traceback"]), output["ename"], output["evalue"])


def settled(output: NotebookNode) -> NotebookNode:
    """Return an output without what a rerun changes: a widget's view is a random id."""
    if VIEW in output.get("data", {}):
        output.data = NotebookNode({"text/plain": WIDGET})
    if PNG in output.get("data", {}):
        output.data[PNG] = smaller(output.data[PNG])
    return output


def smaller(png: str) -> str:
    """Return a picture, as base64 before and after, with 256 colours on white and no metadata: a third of the bytes."""
    with Image.open(BytesIO(b64decode(png))) as given:
        picture = Image.new("RGB", given.size, "white")
        picture.paste(given, mask=given.getchannel("A") if given.mode == "RGBA" else None)
    kept = BytesIO()
    picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(kept, "png", optimize=True)
    return b64encode(kept.getvalue()).decode()


def write(name: str, notebook: NotebookNode) -> int:
    """Write NAME.ipynb, all of it or nothing, and return its size in bytes."""
    nbformat.validate(notebook)
    content = (nbformat.writes(notebook) + "\n").encode()
    with atomic_write(FOLDER / f"{name}.ipynb") as file:
        file.write(content)
    return len(content)


def run(name: str, check: bool) -> str:
    """Execute one notebook, and write it or check it; return what is wrong, or an empty string."""
    print(f"{name}: ", end="", flush=True)
    wrong, size = "", ""
    start = time.perf_counter()
    if check:
        stored = FOLDER / f"{name}.ipynb"
        wrong = cells_differ(read_source(name), read_ipynb(name)) if stored.exists() else "there is no .ipynb"
    if not wrong:
        try:
            notebook = execute(name)
            size = "" if check else f", {write(name, notebook) / 1000:.0f} kB"
        except CellExecutionError as error:
            wrong = f"a cell failed\n{COLOUR.sub('', str(error))}"
    print(wrong or f"{'runs' if check else 'executed'} in {time.perf_counter() - start:.1f} s{size}", flush=True)
    return wrong


def main() -> int:
    """Read the command line, run, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail unless the .ipynb fits and runs")
    parser.add_argument("name", nargs="*", help="notebooks such as 01_tree_shapes; all of them if none is named")
    given = parser.parse_args()
    unknown = sorted(set(given.name) - set(names()))
    if unknown:
        parser.error(f"name: got {', '.join(unknown)}, needs one of {', '.join(names())}")
    wrongs = [run(name, given.check) for name in given.name or names()]
    return int(any(wrongs))


if __name__ == "__main__":
    sys.exit(main())
