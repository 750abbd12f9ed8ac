"""int4_dequant on a device."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kdtree.reference.arrays import count, sizes
from kdtree.reference.errors import ShapeError
from kdtree.reference.int4 import GROUP, NIBBLES
from kdtree.reference.int4_dequant import int4_dequant as truth

from ._plan import Array, Device, refuse

__all__ = ["int4_dequant", "launch"]


def int4_dequant(
    device: Device, packed_OW: ArrayLike, scale_OG: ArrayLike, in_features: int, rounded: bool = True
) -> NDArray[np.float32]:
    """Return the weights of an INT4 matrix; see `kdtree.reference.int4_dequant`."""
    packed = device.integers("packed_OW", packed_OW)
    sizes(packed_OW=packed)
    width, (rows, words) = count("in_features", in_features), packed.shape
    if words != -(-width // NIBBLES):
        raise ShapeError(f"packed_OW: got shape {(rows, words)}, needs {-(-width // NIBBLES)} words for {width} inputs")
    scales, needs = device.floats("scale_OG", scale_OG), (rows, -(-width // GROUP))
    if scales.shape != needs or scales.dtype != np.float32:
        raise ShapeError(f"scale_OG: got {scales.dtype} {scales.shape}, needs float32 {needs}")
    weight_OI: NDArray[np.float32] = device.empty((rows, width), np.float32)
    status_O = device.empty(rows, np.int32)
    launch(device, packed, scales, rounded, weight_OI, status_O)

    def check(packed: Array, scales: Array) -> None:
        truth(packed, scales, width)

    refuse(device, status_O, check, packed, scales)
    return weight_OI


def launch(device: Device, packed_OW: Array, scale_OG: Array, rounded: bool, weight_OI: Array, status_O: Array) -> None:
    """Fill the weights; status is 1 where a scale is not finite or too large, and the row's weights are undefined."""
    rows, width = weight_OI.shape
    arguments = [packed_OW, scale_OG, np.int64(width), np.int32(rounded), weight_OI, status_O]
    device.launch("int4_dequant", "int4_dequant", rows, 256, arguments)
