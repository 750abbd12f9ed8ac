"""What wrappers over floats share: one precision, and the grid of `products.cuh`."""

import numpy as np
from numpy.typing import DTypeLike

from ._plan import Array, Device

__all__ = ["REALS", "THREADS", "column_tiles", "one_precision", "real", "row_tiles"]

REALS = ({"REAL": "float"}, {"REAL": "double"})  #: the VARIANTS of their sources
THREADS = 256  #: a block; it has 8 warps
ROWS, COLUMNS = 8, 32  # outputs of a block of products.cuh


def one_precision(device: Device, **arrays: Array) -> list[Array]:
    """Bring arrays to the device, all as float64 if one is and else float32; ShapeError if one is neither."""
    ordered = [device.floats(name, array) for name, array in arrays.items()]
    if len({array.dtype for array in ordered}) > 1:
        return [array.astype(np.float64) for array in ordered]
    return ordered


def real(dtype: DTypeLike) -> str:
    """Return the type of C++ that is REAL for arrays of this dtype."""
    return "float" if np.dtype(dtype) == np.float32 else "double"


def row_tiles(rows: int) -> int:
    """Return how many blocks cover the rows."""
    return -(-rows // ROWS)


def column_tiles(columns: int) -> int:
    """Return how many blocks cover the columns."""
    return -(-columns // COLUMNS)
