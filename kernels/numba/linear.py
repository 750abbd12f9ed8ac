"""linear on the CPU."""

import numpy as np

from kdtree.reference.arrays import Float, sizes

from ._products import one_precision, products

__all__ = ["linear"]


def linear(x_TI: Float, weight_OI: Float) -> Float:
    """Map each row, to the same bits as alone; see `kdtree.reference.linear`."""
    sizes(x_TI=x_TI, weight_OI=weight_OI)
    x, weight = one_precision(x_TI=x_TI, weight_OI=weight_OI)
    return products(x, weight[None], np.zeros(len(x), np.int32))
