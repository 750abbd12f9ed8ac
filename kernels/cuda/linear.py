"""linear on a device."""

import numpy as np

from kdtree.reference.arrays import Float, sizes

from ._plan import Array, Device
from ._products import REALS, THREADS, column_tiles, one_precision, real, row_tiles

__all__ = ["VARIANTS", "launch", "linear"]

VARIANTS = REALS


def linear(device: Device, x_TI: Float, weight_OI: Float) -> Float:
    """Map each row, to the same bits as alone; see `kdtree.reference.linear`."""
    x, weight = one_precision(device, x_TI=x_TI, weight_OI=weight_OI)
    size = sizes(x_TI=x, weight_OI=weight)
    y_TO: Float = device.empty((size["T"], size["O"]), x.dtype)
    launch(device, x, weight, y_TO)
    return y_TO


def launch(device: Device, x_TI: Array, weight_OI: Array, y_TO: Array) -> None:
    """Fill y."""
    (T, I), O = x_TI.shape, len(weight_OI)  # noqa: E741
    arguments = [x_TI, weight_OI, np.int64(T), np.int64(I), np.int64(O), y_TO]
    device.launch("linear", "linear", row_tiles(T) * column_tiles(O), THREADS, arguments, REAL=real(y_TO.dtype))
