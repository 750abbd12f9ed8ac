"""Run ops on every backend: numpy arrays in and out, whatever the backend takes."""

import numpy as np
import pytest

from kdtree import ops
from kdtree.testing import Kernel


def pairs(names, truth=False):
    """Return op and backend of every kernel as parameters of a test, with `truth` numpy's too."""
    return [
        pytest.param(ops.all_ops()[name], backend, id=f"{name}-{backend}", marks=marks_of(backend))
        for name in names
        for backend in ops.all_ops()[name].backends()
        if truth or backend != "numpy"
    ]


def marks_of(backend):
    return [pytest.mark.gpu] if backend == "cuda" else []


def module_of(backend):
    """Return the module whose arrays a backend takes: numpy, or CuPy."""
    return pytest.importorskip("cupy") if backend == "cuda" else np


def results(op, backend, arguments):
    """Return what the op returns, and what it changes, as a tuple of numpy arrays of the op's type."""
    return Kernel.of(op.name, backend).results(list(arguments))
