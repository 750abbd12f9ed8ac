"""`python -m kdtree.kernels.cuda._report`: compile every kernel, without a GPU, and write the table of docs/kernels.md.

NVRTC's own library is called, from the wheel nvidia-cuda-nvrtc, so that nothing else of CUDA need be installed.
"""

import ctypes
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from ._source import OPTIONS, Defines, define_options, kernel_ops, source, variants

__all__ = ["ARCHITECTURES", "Usage", "compile_source", "nvrtc_version", "page_with_table", "table", "usages"]

ARCHITECTURES = ("sm_90", "sm_120")
PAGE = Path("docs", "kernels.md")
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
ENTRY = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers(?:[^\n]*?(?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)


class Usage(NamedTuple):
    """What a kernel takes of a multiprocessor, on one architecture."""

    kernel: str
    macros: str
    architecture: str
    registers: int  #: a thread
    spilled_bytes: int  #: stored and loaded, a thread
    shared_bytes: int  #: static, a block


@lru_cache
def nvrtc() -> ctypes.CDLL:
    """Load NVRTC; ImportError if its wheel is not installed."""
    place = {file.name.partition(".so")[0]: str(file.locate()) for file in metadata.files("nvidia-cuda-nvrtc") or []}
    ctypes.CDLL(place["libnvrtc-builtins"])  # it is found by its name, once it is loaded
    return ctypes.CDLL(place["libnvrtc"])


def nvrtc_version() -> str:
    """Return the version of the wheel."""
    return metadata.version("nvidia-cuda-nvrtc")


def compile_source(text: str, options: Sequence[str]) -> str:
    """Compile a CUDA text and return the log; RuntimeError, with the log, if NVRTC refuses it."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc().nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    try:
        encoded = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        refused = nvrtc().nvrtcCompileProgram(program, len(options), encoded)
        nvrtc().nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc().nvrtcGetProgramLog(program, log)
    finally:
        nvrtc().nvrtcDestroyProgram(ctypes.byref(program))
    if refused:
        raise RuntimeError(f"NVRTC refuses the kernel:\n{log.value.decode()}")
    return log.value.decode()


def usages(op: str, defines: Defines, architecture: str) -> Iterator[Usage]:
    """Compile a variant of an op's source and yield what each of its kernels takes."""
    macros = define_options(defines)
    target = f"--gpu-architecture={architecture}"
    log = compile_source(source(op), (*OPTIONS, *macros, target, "--ptxas-options=-v"))
    for entry in ENTRY.finditer(log):
        spilled = int(entry["stores"]) + int(entry["loads"])
        words = " ".join(macro.removeprefix("-D") for macro in macros)
        yield Usage(entry["kernel"], words, architecture, int(entry["registers"]), spilled, int(entry["shared"] or "0"))


@lru_cache
def all_usages() -> tuple[Usage, ...]:
    """Compile every variant of every source for every architecture."""
    return tuple(
        usage
        for op in kernel_ops()
        for defines in variants(op)
        for architecture in ARCHITECTURES
        for usage in sorted(usages(op, defines, architecture))
    )


def table() -> str:
    """Return the table of all kernels, in Markdown."""
    used = {(usage.kernel, usage.macros, usage.architecture): usage for usage in all_usages()}
    lines = [
        f"Compiled by NVRTC {nvrtc_version()}.\n",
        f"| kernel | macros | {' | '.join(f'registers, {name}' for name in ARCHITECTURES)} | static shared memory, B |",
        "| --- " * (len(ARCHITECTURES) + 3) + "|",
    ]
    for kernel, macros in dict.fromkeys(key[:2] for key in used):
        row = [used[kernel, macros, architecture] for architecture in ARCHITECTURES]
        registers = " | ".join(str(usage.registers) for usage in row)
        lines.append(f"| {kernel} | {macros} | {registers} | {max(usage.shared_bytes for usage in row)} |")
    return "\n".join(lines) + "\n"


def page_with_table(page: str) -> str:
    """Return the page with the table of now between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
