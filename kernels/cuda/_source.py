"""The text of a kernel's .cu file, one text for NVRTC and g++."""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path

__all__ = ["OPTIONS", "SHARED_LIMIT", "Defines", "define_options", "kernel_names", "kernel_ops", "source", "variants"]

FOLDER = Path(__file__).parent
OPTIONS = ("-std=c++17", "--fmad=false")  # no product is fused with a sum unless the source says fmaf
SHARED_LIMIT = 101_376  # bytes a block may have on sm_120, the target

Defines = Mapping[str, object]


def kernel_ops() -> list[str]:
    """Return the ops that have a .cu file."""
    return sorted(path.stem for path in FOLDER.glob("*.cu"))


@lru_cache
def source(op: str) -> str:
    """Return `<op>.cu` with its headers in place of the `#include "..."` lines, so that a cache sees their changes."""

    def text(match: re.Match[str]) -> str:
        return f'#line 1 "{match[1]}"\n' + (FOLDER / match[1]).read_text().replace("#pragma once\n", "\n")

    lines = (FOLDER / f"{op}.cu").read_text().splitlines(keepends=True)
    found = ((number, re.match(r'#include "(.+)"', line)) for number, line in enumerate(lines, 1))
    return f'#line 1 "{op}.cu"\n' + "".join(
        f'{text(match)}#line {number + 1} "{op}.cu"\n' if match else lines[number - 1] for number, match in found
    )


def kernel_names(op: str) -> list[str]:
    """Return the names of the kernels in a source, in its order."""
    return re.findall(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\)\s*)?(\w+)\(', source(op))


def define_options(defines: Defines) -> tuple[str, ...]:
    """Return macros as options of a compiler."""
    return tuple(f"-D{name}={value}" for name, value in sorted(defines.items()))


def variants(op: str) -> tuple[Defines, ...]:
    """Return the macros that an op's wrapper compiles its source with, one mapping a variant: its VARIANTS."""
    return getattr(import_module(f"kdtree.kernels.cuda.{op}"), "VARIANTS", ({},))
