"""Compile a CUDA source for the CPU, once: shared objects are kept by all that went into them."""

import ctypes
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from kdtree.kernels.cuda._cache import kept
from kdtree.kernels.cuda._source import kernel_names

__all__ = ["compiler", "library"]

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
def library(cuda_text: str, options: tuple[str, ...]) -> ctypes.CDLL:
    """Compile a CUDA text, or take it from the cache.

    Raises
    ------
    RuntimeError
        g++ refuses the text; the message is g++'s.
    """
    entries = "".join(f"HOST_ENTRY({kernel})\n" for kernel in kernel_names(cuda_text))
    dynamic = DYNAMIC_SHARED.sub(r"\1* const \2 = host_dynamic_shared<\1>();", cuda_text)
    text = f'#include "cuda.h"\n#line 1 "kernel.cu"\n{dynamic}\n#line 1 "entries"\n{entries}'
    command = [*FLAGS, *WARNINGS, *options]

    def make(path: Path) -> None:
        run = [compiler(), *command, f"-I{FOLDER}", "-x", "c++", "-", "-o", str(path)]
        done = subprocess.run(run, input=text, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"g++ refuses the kernel:\n{done.stderr}")

    headers = [(FOLDER / name).read_text() for name in HEADERS]
    return ctypes.CDLL(str(kept("host", ".so", [text, *headers, *command], make)))
