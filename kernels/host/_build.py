"""Compile a CUDA source for the CPU, once: shared objects are kept by the hash of all that went into them."""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from kdtree.kernels.cuda._source import kernel_names, source

__all__ = ["build", "cache_folder", "compiler", "library"]

FOLDER = Path(__file__).parent
HEADERS = ("cuda.h", "fibers.h", "switch.h")
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden")
WARNINGS = ("-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-unused-function")
DYNAMIC_SHARED = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];")


def compiler() -> str:
    """Return the path of g++; ImportError if there is none."""
    found = shutil.which("g++")
    if found is None:
        raise ImportError("g++ is not on the path")
    return found


@lru_cache
def library(op: str, options: tuple[str, ...]) -> ctypes.CDLL:
    """Return the compiled source of an op."""
    return build(source(op), kernel_names(op), options)


def build(cuda_text: str, kernels: Sequence[str], options: Sequence[str]) -> ctypes.CDLL:
    """Compile a CUDA text, or take it from the cache.

    Several processes may build one text at once: each compiles to a file of its own and renames it.

    Raises
    ------
    RuntimeError
        g++ refuses the text; the message is g++'s.
    """
    entries = "".join(f"HOST_ENTRY({kernel})\n" for kernel in kernels)
    dynamic = DYNAMIC_SHARED.sub(r"\1* const \2 = host_dynamic_shared<\1>();", cuda_text)
    text = f'#include "cuda.h"\n#line 1 "kernel.cu"\n{dynamic}\n#line 1 "entries"\n{entries}'
    command = [*FLAGS, *WARNINGS, *options]
    headers = [(FOLDER / name).read_text() for name in HEADERS]
    key = hashlib.sha256("\0".join([text, *headers, *command]).encode()).hexdigest()[:32]
    target = cache_folder() / f"{key}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder, target.name)
            command += [f"-I{FOLDER}", "-x", "c++", "-", "-o", str(made)]
            done = subprocess.run([compiler(), *command], input=text, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"g++ refuses the kernel:\n{done.stderr}")
            made.replace(target)
    return ctypes.CDLL(str(target))


@lru_cache
def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/kdtree/host`, or a new temporary folder where that cannot be written."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kdtree", "host")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="kdtree-host-"))
