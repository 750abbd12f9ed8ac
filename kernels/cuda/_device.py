"""A CUDA GPU as a device: sources compiled by NVRTC, CuPy arrays out, on the stream that is current at each call."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kdtree.reference.arrays import INT32
from kdtree.reference.errors import ShapeError

from ._plan import Array, check_arguments
from ._source import OPTIONS, define_options, kernel_names, source

__all__ = ["CudaDevice", "device"]

DLPACK_ON_CUDA = (2, 13)  # device memory, managed memory


class CudaDevice:
    """Run kernels on the current CUDA device."""

    def __init__(self) -> None:
        import cupy  # not at the top: wrappers are imported without it

        self._cupy = cupy
        self._modules: dict[tuple[str, tuple[str, ...], int], Any] = {}
        self._functions: dict[tuple[object, str], Any] = {}
        self._granted: dict[object, int] = {}  # dynamic shared memory, by kernel

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may opt in to."""
        return opt_in_limit(self._cupy.cuda.Device().id)

    def array(self, name: str, value: object) -> Array:
        """Return `value` as a CuPy array without a copy; TypeError for what is not in a GPU's memory."""
        cupy = self._cupy
        if isinstance(value, cupy.ndarray):
            array = value
        elif hasattr(value, "__cuda_array_interface__"):
            array = cupy.asarray(value)
        elif hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in DLPACK_ON_CUDA:
            array = cupy.from_dlpack(value)
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
        blocks, threads = as_tuple(grid), as_tuple(block)
        if 0 in blocks:
            return
        function = self._function(op, define_options(defines), kernel, self._cupy.cuda.Device().id)
        if shared_bytes > self._granted.get(function, 0):
            driver = self._cupy.cuda.driver
            driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
            self._granted[function] = shared_bytes
        function(blocks, threads, tuple(arguments), shared_mem=shared_bytes)

    def _function(self, op: str, macros: tuple[str, ...], kernel: str, gpu: int) -> Any:
        """Return a kernel, compiled when it is first asked for on a GPU."""
        if (op, macros, gpu) not in self._modules:
            module = self._cupy.cuda.function.Module()
            architecture = f"--gpu-architecture=sm_{self._cupy.cuda.Device().compute_capability}"
            module.load(cubin(op, (*OPTIONS, *macros, architecture)))
            self._modules[op, macros, gpu] = module
            self._functions.update({(module, name): module.get_function(name) for name in kernel_names(op)})
        return self._functions[self._modules[op, macros, gpu], kernel]


@lru_cache
def opt_in_limit(device_id: int) -> int:
    """Return the most shared memory of a block on a GPU; asking it is slow."""
    import cupy

    return int(cupy.cuda.Device(device_id).attributes["MaxSharedMemoryPerBlockOptin"])


def cubin(op: str, options: tuple[str, ...]) -> bytes:
    """Compile the source of an op by NVRTC; RuntimeError, with its log, if it refuses.

    cupy.RawModule would flush subnormal numbers to 0: it adds -ftz=true to any options.
    """
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(source(op), f"{op}.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        compiled: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(f"{error}: NVRTC refuses {op}.cu:\n{nvrtc.getProgramLog(program)}") from None
    finally:
        nvrtc.destroyProgram(program)
    return compiled


def ordered(array: Array) -> Array:
    """Return an array C-ordered, copied if it is not; cupy.ascontiguousarray would give a scalar an axis."""
    return array if array.flags.c_contiguous else array.copy()


def as_tuple(size: int | Sequence[int]) -> tuple[int, ...]:
    """Return a size of one or more dimensions as a tuple."""
    return (size,) if isinstance(size, int) else tuple(size)


@lru_cache
def device() -> CudaDevice:
    """Return the device of `Op.on("cuda")`; ImportError without CuPy."""
    return CudaDevice()
