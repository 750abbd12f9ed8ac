"""rms_norm on a device."""

import numpy as np

from kdtree.reference.arrays import Float, sizes

from ._plan import Array, Device
from ._products import REALS, THREADS, one_precision, real

__all__ = ["VARIANTS", "launch", "rms_norm"]

VARIANTS = REALS


def rms_norm(device: Device, x_TD: Float, weight_D: Float, eps: float) -> Float:
    """Scale each row to unit mean square, then by the weight; see `kdtree.reference.rms_norm`."""
    x, weight = one_precision(device, x_TD=x_TD, weight_D=weight_D)
    sizes(x_TD=x, weight_D=weight)
    y_TD: Float = device.empty(x.shape, x.dtype)
    launch(device, x, weight, eps, y_TD)
    return y_TD


def launch(device: Device, x_TD: Array, weight_D: Array, eps: float, y_TD: Array) -> None:
    """Fill y."""
    T, D = x_TD.shape
    arguments = [x_TD, weight_D, np.int64(D), y_TD.dtype.type(eps), y_TD]
    device.launch("rms_norm", "rms_norm", T, THREADS, arguments, REAL=real(y_TD.dtype))
