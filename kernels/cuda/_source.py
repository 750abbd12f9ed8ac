"""The text of a kernel's .cu file, one text for NVRTC and g++."""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from os import PathLike
from pathlib import Path

__all__ = [
    "OPTIONS",
    "SHARED_LIMIT",
    "Defines",
    "define_options",
    "kernel_names",
    "kernel_ops",
    "replacement",
    "source",
    "variants",
]

FOLDER = Path(__file__).parent
OPTIONS = ("-std=c++17", "--fmad=false")  # no product is fused with a sum unless the source says fmaf
SHARED_LIMIT = 101_376  # bytes a block may have on sm_120, the target
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
BOUNDS = r"(?:__launch_bounds__\(.*?\)\s*)?"
KERNEL = re.compile(rf'extern "C"\s+__global__\s+{BOUNDS}void\s+{BOUNDS}(\w+)\s*\(')

Defines = Mapping[str, object]


def kernel_ops() -> list[str]:
    """Return the ops that have a .cu file."""
    return sorted(path.stem for path in FOLDER.glob("*.cu"))


@lru_cache
def source(op: str) -> str:
    """Return the text of `<op>.cu`."""
    return read_source(FOLDER / f"{op}.cu")


def replacement(op: str, path: str | PathLike[str]) -> str:
    """Return the text of a file that takes the place of `<op>.cu`; ValueError if it lacks one of that one's kernels."""
    text = read_source(Path(path))
    for kernel in kernel_names(source(op)):
        if kernel not in kernel_names(text):
            raise ValueError(
                f'source: got no kernel {kernel} in {path}, needs extern "C" __global__ void {kernel}(...)'
            )
    return text


def read_source(path: Path) -> str:
    """Return a file with its headers in place of the `#include "..."` lines, so that a cache sees their changes.

    A header is looked for beside the file, then among ours.
    """
    parts = [f'#line 1 "{path.name}"\n']
    for number, line in enumerate(text_of(path).splitlines(keepends=True), 1):
        match = INCLUDE.match(line)
        if match:
            places = [path.parent / match[1], FOLDER / match[1]]
            header = next((place for place in places if place.is_file()), places[0])
            text = text_of(header).replace("#pragma once\n", "\n")
            line = f'#line 1 "{match[1]}"\n{text}\n#line {number + 1} "{path.name}"\n'
        parts.append(line)
    return "".join(parts)


def text_of(path: Path) -> str:
    """Return the text of a file; ValueError, with its path, if it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"source: got {path}, which is no text ({error.reason}), needs UTF-8") from None


def kernel_names(text: str) -> list[str]:
    """Return the names of the kernels in a text, in its order."""
    return KERNEL.findall(text)


def define_options(defines: Defines) -> tuple[str, ...]:
    """Return macros as options of a compiler."""
    return tuple(f"-D{name}={value}" for name, value in sorted(defines.items()))


def variants(op: str) -> tuple[Defines, ...]:
    """Return the macros that an op's wrapper compiles its source with, one mapping a variant: its VARIANTS."""
    return getattr(import_module(f"kdtree.kernels.cuda.{op}"), "VARIANTS", ({},))
