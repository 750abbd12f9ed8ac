"""The rules that make numba's disk cache safe between processes, and the proof that it is."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from kdtree import ops

KERNELS = Path(ops.KERNELS) / "numba"
FILES = sorted(KERNELS.glob("*.py"))

WORK = """
import numpy as np
from kdtree import ops
trees = ops.tree_build.on("numba")([7], np.log(np.float32([[[0.6, 0.4], [0.9, 0.1]]])), [[[10, 11], [20, 21]]], 3)
links = ops.retrieve.on("numba")(trees.parent_BN, trees.node_count_B)
walk = ops.accept_greedy.on("numba")(trees.token_BN, *links, trees.node_count_B, [[10, 20, 5, 0]])
mask = ops.visibility_packed.on("numba")(trees.parent_BN, trees.node_count_B)
print(trees.token_BN.tolist(), walk.path_BN.tolist(), mask.ravel().tolist())
"""
ANSWER = "[[7, 10, 20, 11]] [[0, 1, 2, -1]] [1, 3, 7, 9]\n"


def start(cache, code=WORK):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def compiled_in(file):
    """Return the compiled functions of a file of kernels, and the name of its module."""
    module = importlib.import_module(f"kdtree.kernels.numba.{file.stem}")
    return [f for f in vars(module).values() if isinstance(f, Dispatcher)], module.__name__


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_kernel_has_one_signature(file):
    """Overloads added by two processes at once would share a file number in the cache."""
    compiled, _ = compiled_in(file)
    for kernel in compiled:
        if type(kernel._cache).__name__ != "NullCache":
            assert len(kernel.signatures) == 1
            assert not kernel._can_compile


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_kernel_calls_compiled_functions_of_its_own_file_only(file):
    """The date of the kernel's file is all that numba compares before it takes old machine code."""
    compiled, name = compiled_in(file)
    assert {f.py_func.__module__ for f in compiled} <= {name}


def test_the_kernels_are_found_and_cached():
    cached = [f for file in FILES for f in compiled_in(file)[0] if type(f._cache).__name__ != "NullCache"]
    assert len(cached) >= 14


def test_processes_that_fill_one_empty_cache_at_once_all_get_the_right_answer(tmp_path):
    assert [finish(process) for process in [start(tmp_path) for _ in range(4)]] == [ANSWER] * 4
    assert list(tmp_path.rglob("*.nbi"))
    assert finish(start(tmp_path)) == ANSWER


def test_a_cache_cut_short_is_compiled_again(tmp_path):
    """A process that dies while it writes leaves no half file; a damaged one is an error of numba's own or ignored."""
    assert finish(start(tmp_path)) == ANSWER
    for index in tmp_path.rglob("*.nbi"):
        index.write_bytes(b"")
    assert finish(start(tmp_path)) == ANSWER


def test_without_a_writable_folder_kernels_compile_at_every_start(tmp_path):
    """Numba raises where it finds no place for a cache; the kernel still works."""
    code = "from numba.core.caching import CacheImpl; CacheImpl._locator_classes = []\n" + WORK
    assert finish(start(tmp_path, code)) == ANSWER
    assert not list(tmp_path.iterdir())
