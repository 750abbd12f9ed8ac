"""visibility on a device."""

import numpy as np
from numpy.typing import ArrayLike

from kdtree.reference.arrays import Bool

from ._plan import Array, Device, as_parents, refuse_parents

__all__ = ["launch", "visibility"]

ROWS = 8  # warps a block


def visibility(device: Device, parent_BN: ArrayLike, node_count_B: ArrayLike) -> Bool:
    """Tell which slots each slot may attend to; see `kdtree.reference.visibility`."""
    parents, counts = as_parents(device, parent_BN, node_count_B)
    B, N = parents.shape
    visible_BNN: Bool = device.empty((B, N, N), np.bool_)
    status_B = device.empty(B, np.int32)
    launch(device, parents, counts, visible_BNN, status_B)
    refuse_parents(device, status_B, parents, counts)
    return visible_BNN


def launch(device: Device, parent_BN: Array, node_count_B: Array, visible_BNN: Array, status_B: Array) -> None:
    """Fill the mask; status is 1 where parents are no tree, and its mask is False."""
    B, N = parent_BN.shape
    arguments = [parent_BN, node_count_B, np.int64(N), visible_BNN, status_B]
    device.launch("visibility", "visibility", B * (N // ROWS + 1), 32 * ROWS, arguments)
