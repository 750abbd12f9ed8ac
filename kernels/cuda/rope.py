"""rope on a device."""

import numpy as np
from numpy.typing import NDArray

from kdtree.reference.arrays import Float, Index, sizes
from kdtree.reference.errors import ShapeError

from ._plan import Array, Device
from ._products import REALS, THREADS, real

__all__ = ["VARIANTS", "launch", "rope"]

VARIANTS = REALS


def rope(
    device: Device, x_THR: Float, position_T: Index, inv_freq_J: NDArray[np.float64], scale: float, interleave: bool
) -> Float:
    """Rotate pair j of each vector by position * inv_freq[j]; see `kdtree.reference.rope`."""
    x, positions = device.floats("x_THR", x_THR), device.integers("position_T", position_T)
    frequencies = device.floats("inv_freq_J", inv_freq_J).astype(np.float64, copy=False)
    R = sizes(x_THR=x, position_T=positions, inv_freq_J=frequencies)["R"]
    if 2 * len(frequencies) != R:
        raise ShapeError(f"inv_freq_J: got {len(frequencies)} frequencies, needs R / 2 for R = {R}")
    y_THR: Float = device.empty(x.shape, x.dtype)
    launch(device, x, positions, frequencies, scale, interleave, y_THR)
    return y_THR


def launch(
    device: Device,
    x_THR: Array,
    position_T: Array,
    inv_freq_J: Array,
    scale: float,
    interleave: bool,
    y_THR: Array,
) -> None:
    """Fill y."""
    (T, H, _), J = x_THR.shape, len(inv_freq_J)
    numbers = [np.int64(H), np.int32(J), np.float64(scale), np.int32(interleave)]
    arguments = [x_THR, position_T, inv_freq_J, *numbers, y_THR]
    shared_bytes = 2 * J * y_THR.dtype.itemsize
    device.launch("rope", "rope", T, THREADS, arguments, shared_bytes=shared_bytes, REAL=real(y_THR.dtype))
