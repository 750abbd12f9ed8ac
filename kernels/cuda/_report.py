"""`python -m kdtree.kernels.cuda._report`: compile every kernel, without a GPU, and write the table of docs/kernels.md.

NVRTC's own library is called, from the wheel nvidia-cuda-nvrtc, so that nothing else of CUDA need be installed.
"""

import ctypes
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from ._cache import kept
from ._source import OPTIONS, Defines, define_options, kernel_ops, source, variants

__all__ = [
    "ARCHITECTURES",
    "Usage",
    "compile_log",
    "compile_source",
    "nvrtc_version",
    "page_with_table",
    "rows",
    "usages",
    "warnings",
]

ARCHITECTURES = ("sm_90", "sm_120")
PAGE = Path("docs", "kernels.md")
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
ENTRY = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers(?:[^\n]*?(?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)
INFO = re.compile(r"ptxas (?:info    :|        \.) ")


class Usage(NamedTuple):
    """What a kernel takes of a multiprocessor."""

    kernel: str
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


def compile_log(op: str, defines: Defines, architecture: str) -> str:
    """Compile a variant of an op's source, or take from the cache what NVRTC and ptxas say of it."""
    options = (*OPTIONS, *define_options(defines), f"--gpu-architecture={architecture}", "--ptxas-options=-v")
    text = source(op)
    parts = [text, *options, f"NVRTC {nvrtc_version()}"]
    return kept("cuda", ".log", parts, lambda path: path.write_text(compile_source(text, options))).read_text()


def warnings(log: str) -> list[str]:
    """Return the lines of a log but those in which ptxas says what kernels take."""
    return [line for line in log.splitlines() if line and not INFO.match(line)]


def usages(log: str) -> list[Usage]:
    """Return what each kernel of a log takes, by name."""
    return sorted(
        Usage(
            entry["kernel"],
            int(entry["registers"]),
            int(entry["stores"]) + int(entry["loads"]),
            int(entry["shared"] or "0"),
        )
        for entry in ENTRY.finditer(log)
    )


def rows(op: str, defines: Defines) -> list[str]:
    """Return the rows of the table for the kernels of a variant, in Markdown."""
    macros = " ".join(option.removeprefix("-D") for option in define_options(defines))
    on_each = [usages(compile_log(op, defines, architecture)) for architecture in ARCHITECTURES]
    return [
        f"| {kernel[0].kernel} | {macros} | {' | '.join(str(usage.registers) for usage in kernel)} "
        f"| {max(usage.shared_bytes for usage in kernel)} |"
        for kernel in zip(*on_each, strict=True)
    ]


def page_with_table(page: str, rows: Iterable[str]) -> str:
    """Return the page with a table of these rows between its marks."""
    columns = ["kernel", "macros", *(f"registers, {name}" for name in ARCHITECTURES), "static shared memory, B"]
    head = [f"Compiled by NVRTC {nvrtc_version()}.\n", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    before, _, rest = page.partition(BEGIN)
    table = "\n".join([*head, *rows])
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    all_rows = [row for op in kernel_ops() for defines in variants(op) for row in rows(op, defines)]
    PAGE.write_text(page_with_table(PAGE.read_text(), all_rows))
