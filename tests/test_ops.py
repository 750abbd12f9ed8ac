"""The one interface of all backends."""

import inspect
import subprocess
import sys

import pytest

from kdtree import BackendUnavailable, ops


@pytest.mark.parametrize("op", ops.all_ops().values(), ids=ops.all_ops())
def test_an_op_looks_like_its_truth(op):
    assert inspect.signature(op) == inspect.signature(op.truth)
    assert op.__doc__ == op.truth.__doc__
    assert op.__name__ == op.name == op.truth.__name__
    assert op.on("numpy") is op.truth


@pytest.mark.parametrize("op", ops.all_ops().values(), ids=ops.all_ops())
def test_an_op_is_named_like_its_file(op):
    assert op.truth.__module__ == f"kdtree.reference.{op.name}"
    for backend in set(op.backends()) - {"numpy", "cuda"}:
        folder = "cuda" if backend == "host" else backend
        assert op.on(backend).__module__ == f"kdtree.kernels.{folder}.{op.name}"


def test_calling_an_op_runs_the_truth():
    assert ops.retrieve([[-1, 0]], [2]).first_child_BN.tolist() == [[1, -1]]


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(BackendUnavailable, match="got 'tpu', needs one of numpy, numba, host, cuda"):
        ops.tree_build.on("tpu")


def test_a_missing_kernel_is_refused_with_the_backends_that_have_one():
    def nothing() -> None:
        """Do nothing."""

    with pytest.raises(BackendUnavailable, match="nothing has no numba kernel; it runs on numpy"):
        ops.Op(nothing).on("numba")


BLOCK = """
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def run(code, *blocked):
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(blocked=set(blocked)) + code], capture_output=True, text=True, timeout=120
    )


def test_a_missing_library_is_refused_with_its_remedy():
    code = (
        "import kdtree.ops\ntry: kdtree.ops.retrieve.on('numba')\nexcept kdtree.ops.BackendUnavailable as e: print(e)"
    )
    assert run(code, "numba", "llvmlite").stdout == "backend numba: blocked: numba; pip install numba\n"


def test_a_missing_compiler_is_refused_with_its_remedy():
    code = (
        "import os, kdtree.ops\nos.environ['PATH'] = ''\n"
        "try: kdtree.ops.retrieve.on('host')\nexcept kdtree.ops.BackendUnavailable as e: print(e)"
    )
    needs = "backend host: g++ is not on the path; install g++, for example with apt-get install g++\n"
    assert run(code).stdout == needs


def test_a_missing_cupy_is_refused_with_its_remedy_and_wrappers_do_without():
    code = (
        "import kdtree.ops, kdtree.kernels.cuda.retrieve\n"
        "try: kdtree.ops.retrieve.on('cuda')\nexcept kdtree.ops.BackendUnavailable as e: print(e)"
    )
    assert run(code, "cupy").stdout == "backend cuda: blocked: cupy; pip install 'kdtree-lab[cuda]'\n"


def test_importing_kdtree_needs_numpy_alone():
    others = ("numba", "llvmlite", "matplotlib", "typer", "rich", "safetensors", "ml_dtypes", "cupy", "torch", "scipy")
    code = "import kdtree, kdtree.plot, kdtree.draw, kdtree.builders\nprint(kdtree.ops.retrieve([[-1, 0]], [2]))"
    done = run(code, *others)
    assert done.returncode == 0, done.stderr
    assert "first_child_BN" in done.stdout


def test_the_types_of_an_op_are_those_of_its_truth(tmp_path):
    """A type checker sees through Op: the wrong argument is an error, and the result has the field."""
    script = tmp_path / "script.py"
    script.write_text(
        "from kdtree import ops\n"
        "reveal_type(ops.retrieve.on('numba')([[-1]], [1]).first_child_BN)\n"
        "ops.tree_build([0], [[[0.0]]], [[[1]]], 'four')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", str(script)], capture_output=True, text=True
    )
    assert 'Revealed type is "numpy.ndarray[' in done.stdout
    assert "_32Bit" in done.stdout
    assert 'has incompatible type "str"; expected "int"' in done.stdout
