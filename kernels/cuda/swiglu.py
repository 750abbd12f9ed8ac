"""swiglu on a device."""

import numpy as np

from kdtree.reference.arrays import Float, sizes

from ._plan import Array, Device
from ._products import REALS, THREADS, one_precision, real

__all__ = ["VARIANTS", "launch", "swiglu"]

VARIANTS = REALS


def swiglu(device: Device, gate_TF: Float, up_TF: Float) -> Float:
    """Return silu(gate) * up; see `kdtree.reference.swiglu`."""
    gate, up = one_precision(device, gate_TF=gate_TF, up_TF=up_TF)
    sizes(gate_TF=gate, up_TF=up)
    y_TF: Float = device.empty(gate.shape, gate.dtype)
    launch(device, gate, up, y_TF)
    return y_TF


def launch(device: Device, gate_TF: Array, up_TF: Array, y_TF: Array) -> None:
    """Fill y."""
    arguments = [gate_TF, up_TF, np.int64(y_TF.size), y_TF]
    device.launch("swiglu", "swiglu", -(-y_TF.size // THREADS), THREADS, arguments, REAL=real(y_TF.dtype))
