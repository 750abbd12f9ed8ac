"""A .cu file of one's own in the place of an op's, under the same wrapper."""

import shutil

import numpy as np
import pytest
from backends import marks_of

from kdtree import BackendUnavailable, ops
from kdtree.kernels.cuda import _source
from kdtree.place import fetched, placed

EVERY_BACKEND = pytest.mark.parametrize(
    "backend", [pytest.param(backend, marks=marks_of(backend)) for backend in ("host", "cuda")]
)
PARENTS, COUNTS = np.int32([[-1, 0, 0, 1, 1], [-1, 0, 1, 2, 0]]), np.int32([5, 4])
GATES = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)


def ours(op, folder, *changes):
    """Write the source of an op to a folder, with parts replaced, and return its path."""
    path, text = folder / f"{op}.cu", (_source.FOLDER / f"{op}.cu").read_text()
    for part, other in changes:
        assert part in text
        text = text.replace(part, other)
    path.write_text(text)
    return path


def run(function, backend, *arrays):
    returned = function(*(placed(array, backend) for array in arrays))
    return [fetched(array).tolist() for array in (returned if isinstance(returned, tuple) else (returned,))]


@pytest.mark.parametrize("op", _source.kernel_ops())
def test_a_copy_of_an_ops_source_is_the_same_text(op, tmp_path):
    assert _source.replacement(op, ours(op, tmp_path)) == _source.source(op)


@EVERY_BACKEND
def test_a_copy_gives_the_same_results(backend, tmp_path):
    for op, arguments in ((ops.retrieve, (PARENTS, COUNTS)), (ops.swiglu, GATES)):
        function = op.on(backend, ours(op.name, tmp_path))
        assert run(function, backend, *arguments) == run(op.on(backend), backend, *arguments)


@EVERY_BACKEND
def test_a_changed_copy_gives_its_own_results_and_the_ops_own_stay_as_they_were(backend, tmp_path):
    own = ops.retrieve.on(backend)
    before = run(own, backend, PARENTS, COUNTS)
    changed = ops.retrieve.on(backend, ours("retrieve", tmp_path, ("sibling = j;", "sibling = 77;")))
    first_child, next_sibling = run(changed, backend, PARENTS, COUNTS)
    assert first_child == before[0]
    assert next_sibling == [[77 if slot > 0 else slot for slot in row] for row in before[1]]
    assert ops.retrieve.on(backend) is own
    assert run(own, backend, PARENTS, COUNTS) == before


@EVERY_BACKEND
def test_a_file_that_changed_on_disk_is_seen_by_the_next_call_of_on(backend, tmp_path):
    functions = {}
    for sibling in (77, 78, 77):
        path = ours("retrieve", tmp_path, ("sibling = j;", f"sibling = {sibling};"))
        functions[sibling] = ops.retrieve.on(backend, str(path))
        assert run(functions[sibling], backend, PARENTS, COUNTS)[1][0][1] == sibling
    path.unlink()
    assert [run(function, backend, PARENTS, COUNTS)[1][0][1] for function in functions.values()] == [77, 78]


SILU = "x / (1 + exponential(-x))"


@EVERY_BACKEND
def test_a_header_beside_the_file_comes_before_ours_and_its_changes_are_seen(backend, tmp_path):
    path = ours("swiglu", tmp_path)
    headers = (_source.FOLDER / "reals.cuh").read_text()
    for factor in (3, 5):
        (tmp_path / "reals.cuh").write_text(headers.replace(SILU, f"{factor} * x"))
        (got,) = run(ops.swiglu.on(backend, path), backend, *GATES)
        assert got == (factor * GATES[0] * GATES[1]).tolist()
    (tmp_path / "reals.cuh").unlink()
    assert run(ops.swiglu.on(backend, path), backend, *GATES) == run(ops.swiglu.on(backend), backend, *GATES)


@EVERY_BACKEND
def test_a_header_of_ones_own_is_included(backend, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine.cuh").write_text("#pragma once\nconstexpr int MINE = 77;")  # no newline at its end
    path = ours(
        "retrieve", tmp_path, ('#include "tree', '#include "more/mine.cuh"\n#include "tree'), ("= j;", "= MINE;")
    )
    assert run(ops.retrieve.on(backend, path), backend, PARENTS, COUNTS)[1][0][1] == 77


@EVERY_BACKEND
def test_an_error_of_the_compiler_names_the_file_and_the_line(backend, tmp_path):
    path = ours("retrieve", tmp_path, ("sibling = j;", "sibling = nothing;"))
    line = 1 + path.read_text().split("nothing")[0].count("\n")
    shutil.move(path, tmp_path / "mine.cu")
    with pytest.raises(RuntimeError, match=rf"mine\.cu[:(]{line}\b.*nothing"):
        run(ops.retrieve.on(backend, tmp_path / "mine.cu"), backend, PARENTS, COUNTS)


@pytest.mark.parametrize(
    "line",
    [
        'extern "C" __global__ void retrieve(',
        'extern "C" __global__  void\n  retrieve (',
        'extern "C" __global__ void __launch_bounds__(256) retrieve(',
        'extern "C" __global__ __launch_bounds__(32 * WARPS, 2) void retrieve(',
    ],
)
def test_a_kernel_is_found_however_it_is_written(line):
    assert _source.kernel_names(f"{line}int a) {{ }}\n{line}int b) {{ }}") == ["retrieve"] * 2


@pytest.mark.parametrize("backend", ["host", "cuda"])
def test_a_file_that_lacks_a_kernel_is_refused_with_its_name(backend, tmp_path):
    path = ours("moe", tmp_path, ("void moe_add(", "void add("))
    with pytest.raises(ValueError, match=f"source: got no kernel moe_add in {path}, needs extern .* void moe_add"):
        ops.moe.on(backend, path)


@pytest.mark.parametrize("backend", ["host", "cuda"])
def test_a_file_that_is_not_there_is_refused_with_its_path(backend, tmp_path):
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "retrieve.cu")):
        ops.retrieve.on(backend, tmp_path / "retrieve.cu")


def test_a_file_that_is_no_text_is_refused_with_its_path(tmp_path):
    path = tmp_path / "retrieve.cu"
    path.write_bytes(b"\xca\xfe")
    with pytest.raises(ValueError, match=f"source: got {path}, which is no text .*, needs UTF-8"):
        ops.retrieve.on("host", path)


def test_a_header_that_is_not_there_is_refused_with_its_path(tmp_path):
    path = ours("retrieve", tmp_path, ('"tree.cuh"', '"trees.cuh"'))
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "trees.cuh")):
        ops.retrieve.on("host", path)


@pytest.mark.parametrize("backend", ["numpy", "numba", "tpu"])
def test_a_source_for_another_backend_is_refused(backend, tmp_path):
    with pytest.raises(ValueError, match=f"source: got one for backend '{backend}', needs backend 'host' or 'cuda'"):
        ops.retrieve.on(backend, ours("retrieve", tmp_path))


def test_a_source_for_an_op_without_a_wrapper_is_refused(tmp_path):
    def nothing() -> None:
        """Do nothing."""

    with pytest.raises(BackendUnavailable, match="nothing has no host kernel"):
        ops.Op(nothing).on("host", ours("retrieve", tmp_path))
