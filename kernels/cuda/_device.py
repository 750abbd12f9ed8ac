"""A CUDA GPU as a device: sources compiled by NVRTC, CuPy arrays out, on the stream that is current at each call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kdtree.reference.arrays import INT32
from kdtree.reference.errors import ShapeError

from ._cache import kept
from ._plan import Array, check_arguments
from ._source import OPTIONS, define_options, kernel_names, source

__all__ = ["CudaDevice", "cubin", "device"]

DLPACK_ON_CUDA = (2, 13)  # device memory, managed memory
VECTOR = 16  # bytes: compilers read shared memory in whole vectors, past the last element too
BLACKWELL, FIRST_OF_BLACKWELL = 100, (12, 8)  # compute capability, and the first NVRTC that knows it


class CudaDevice:
    """Run kernels on the current CUDA device.

    Parameters
    ----------
    sources : mapping of str to str
        By op, a text that is compiled in place of `<op>.cu`.
    """

    def __init__(self, sources: Mapping[str, str] | None = None) -> None:
        import cupy  # not at the top: wrappers are imported without it

        self._cupy, self.sources = cupy, sources or {}

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may opt in to."""
        return opt_in_limit(self._cupy.cuda.Device().id)

    def array(self, name: str, value: object) -> Array:
        """Return `value` as a CuPy array without a copy; TypeError for what is not in a GPU's memory."""
        cupy = self._cupy
        if isinstance(value, cupy.ndarray):
            array = value
        elif hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in DLPACK_ON_CUDA:
            array = cupy.from_dlpack(value)  # first: its producer lets our stream wait for what it is writing
        elif hasattr(value, "__cuda_array_interface__"):
            array = cupy.asarray(value)
        else:
            kind = type(value).__name__
            raise TypeError(f"{name}: got {kind}, needs an array on a GPU; cupy.asarray brings one there")
        current = cupy.cuda.Device().id
        if array.device.id != current:
            raise ValueError(f"{name}: got an array on GPU {array.device.id}, needs one on the current GPU {current}")
        return array

    def integers(self, name: str, value: ArrayLike) -> Array:
        """Return `value` as C-ordered int32; dtypes other than int32 wait for the device, to see that all fit."""
        array = self.array(name, value)
        if array.dtype.kind not in "iu":
            raise ShapeError(f"{name}: got dtype {array.dtype}, needs integers")
        if array.dtype != np.int32 and array.size:
            for extreme in (int(array.min()), int(array.max())):
                if not INT32.min <= extreme <= INT32.max:
                    raise ValueError(f"{name}: got {extreme}, needs values that fit int32")
        return ordered(array.astype(np.int32, copy=False))

    def floats(self, name: str, value: ArrayLike) -> Array:
        """Return `value` C-ordered in its own precision."""
        array = self.array(name, value)
        if array.dtype not in (np.float32, np.float64):
            raise ShapeError(f"{name}: got dtype {array.dtype}, needs float32 or float64")
        return ordered(array)

    def bools(self, name: str, value: ArrayLike) -> Array:
        """Return `value` as C-ordered bool."""
        array = self.array(name, value)
        if array.dtype != np.bool_:
            raise ShapeError(f"{name}: got dtype {array.dtype}, needs bool")
        return ordered(array)

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike) -> Array:
        """Return an array whose contents are undefined."""
        return self._cupy.empty(shape, dtype)

    def numpy(self, array: Array) -> NDArray[Any]:
        """Return the array on the CPU; waits for it."""
        host: NDArray[Any] = self._cupy.asnumpy(array)
        return host

    def launch(
        self,
        op: str,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[object],
        shared_bytes: int = 0,
        **defines: object,
    ) -> None:
        """Launch a kernel on the current stream; see `Device`."""
        check_arguments(self, kernel, arguments, shared_bytes)
        shared_bytes = -(-shared_bytes // VECTOR) * VECTOR
        blocks, threads = as_tuple(grid), as_tuple(block)
        if 0 in blocks:
            return
        text, gpu = self.sources.get(op) or source(op), self._cupy.cuda.Device().id
        ready = kernels(text, define_options(defines), gpu)[kernel]
        if shared_bytes > ready.granted:
            driver = self._cupy.cuda.driver
            limit = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(ready.function.ptr, limit, shared_bytes)
            ready.granted = shared_bytes
        ready.function(blocks, threads, tuple(arguments), shared_mem=shared_bytes)


@dataclass
class Kernel:
    """A kernel on one GPU, ready to launch."""

    function: Any  #: CuPy's
    granted: int = 0  #: bytes of dynamic shared memory that it may be launched with


@cache  # for good: a module must outlive its running kernels
def kernels(text: str, macros: tuple[str, ...], gpu: int) -> dict[str, Kernel]:
    """Return the kernels of a text by name, compiled for and loaded on the current GPU, whose number is `gpu`."""
    import cupy

    module = cupy.cuda.function.Module()
    module.load(cubin(text, (*OPTIONS, *macros), cupy.cuda.Device(gpu).compute_capability))
    return {name: Kernel(module.get_function(name)) for name in kernel_names(text)}


@lru_cache
def opt_in_limit(device_id: int) -> int:
    """Return the most shared memory of a block on a GPU; asking it is slow."""
    import cupy

    return int(cupy.cuda.Device(device_id).attributes["MaxSharedMemoryPerBlockOptin"])


def cubin(text: str, options: tuple[str, ...], capability: str) -> bytes:
    """Compile a text by NVRTC, or take it from the cache; RuntimeError, with its log, if NVRTC refuses it.

    cupy.RawModule would flush subnormal numbers to 0: it adds -ftz=true to any options.
    """
    from cupy_backends.cuda.libs import nvrtc

    version: tuple[int, int] = nvrtc.getVersion()
    check_nvrtc(version, capability)
    options = (*options, f"--gpu-architecture=sm_{capability}")

    def make(path: Path) -> None:
        program = nvrtc.createProgram(text, "kernel.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
            path.write_bytes(nvrtc.getCUBIN(program))
        except nvrtc.NVRTCError as error:
            raise RuntimeError(f"{error}: NVRTC refuses the kernel:\n{nvrtc.getProgramLog(program)}") from None
        finally:
            nvrtc.destroyProgram(program)

    return kept("cuda", ".cubin", [text, *options, f"NVRTC {version}"], make).read_bytes()


def check_nvrtc(version: tuple[int, int], capability: str) -> None:
    """Raise RuntimeError if an NVRTC of this version, major and minor, is older than the GPU."""
    if int(capability) >= BLACKWELL and version < FIRST_OF_BLACKWELL:
        got, needs = (".".join(map(str, number)) for number in (version, FIRST_OF_BLACKWELL))
        raise RuntimeError(f"NVRTC: got version {got}, needs {needs} or a later one for sm_{capability}")


def ordered(array: Array) -> Array:
    """Return an array C-ordered, copied if it is not; cupy.ascontiguousarray would give a scalar an axis."""
    return array if array.flags.c_contiguous else array.copy()


def as_tuple(size: int | Sequence[int]) -> tuple[int, ...]:
    """Return a size of one or more dimensions as a tuple."""
    return (size,) if isinstance(size, int) else tuple(size)


def device(sources: Mapping[str, str] | None = None) -> CudaDevice:
    """Return the device of `Op.on("cuda")`; ImportError without CuPy."""
    return CudaDevice(sources)
