"""What a wrapper needs of a device, and what wrappers share: a plan is written once and launched on GPU and CPU.

A wrapper is `<op>(device, *arguments of the truth)`, and `Op.on` binds the device. It checks shapes and dtypes,
allocates outputs and a status word a tree, launches, and reads the status. The launch is a function of its own, of
device arrays alone: it neither allocates nor waits, so a CUDA graph can capture it, and the graph's owner reads the
status when it likes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kdtree.reference.arrays import sizes
from kdtree.reference.tree_checks import check_parents

__all__ = ["Array", "Device", "as_parents", "check_arguments", "refuse", "refuse_parents"]

Array: TypeAlias = Any  # of the device: numpy's on the host, CuPy's on a GPU


class Device(Protocol):
    """Where kernels run."""

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may have."""

    def array(self, name: str, value: ArrayLike) -> Array:
        """Return an array on this device as it is, of any dtype and order."""

    def integers(self, name: str, value: ArrayLike) -> Array:
        """Return C-ordered int32 on this device; errors as those of `kdtree.reference.arrays.integers`."""

    def floats(self, name: str, value: ArrayLike) -> Array:
        """Return C-ordered float32 or float64 on this device; errors as those of `kdtree.reference.arrays.floats`."""

    def bools(self, name: str, value: ArrayLike) -> Array:
        """Return C-ordered bool on this device; ShapeError for another dtype."""

    def empty(self, shape: int | Sequence[int], dtype: DTypeLike) -> Array:
        """Return an array whose contents are undefined."""

    def numpy(self, array: Array) -> NDArray[Any]:
        """Return the array on the CPU; waits for it."""

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
        """Launch a kernel of `<op>.cu`, compiled with macros such as REAL="float"; an empty grid launches nothing.

        Arguments are arrays of this device, or numpy scalars of the parameter's very type.

        Raises
        ------
        TypeError
            An argument is neither.
        ValueError
            The plan needs more shared memory than a block may have.
        """


def check_arguments(device: Device, kernel: str, arguments: Sequence[object], shared_bytes: int) -> None:
    """Raise TypeError for a number whose type is Python's, ValueError for too much shared memory."""
    for k, argument in enumerate(arguments):
        if isinstance(argument, int | float) and not isinstance(argument, np.generic):
            raise TypeError(f"{kernel}: got {argument!r} as argument {k}, needs a numpy scalar, such as np.int64")
    if shared_bytes > device.shared_limit:
        raise ValueError(f"{kernel}: needs {shared_bytes} B of shared memory, got a limit of {device.shared_limit} B")


def refuse(device: Device, status_B: Array, check: Callable[..., object], *arrays: Array) -> None:
    """Raise what the truth's check of these arrays raises, if a status word is set; this waits for the device."""
    if device.numpy(status_B).any():
        check(*map(device.numpy, arrays))
        raise AssertionError(f"the kernel refused what {check.__name__} accepts")


def as_parents(device: Device, parent_BN: ArrayLike, node_count_B: ArrayLike) -> tuple[Array, Array]:
    """Bring the arrays that describe trees to the device and check their shapes; the kernel checks the values."""
    parents, counts = device.integers("parent_BN", parent_BN), device.integers("node_count_B", node_count_B)
    sizes(parent_BN=parents, node_count_B=counts)
    return parents, counts


def refuse_parents(device: Device, status_B: Array, parents: Array, counts: Array) -> None:
    """Raise TreeError if the kernel found a tree malformed."""
    refuse(device, status_B, check_parents, parents, counts)
