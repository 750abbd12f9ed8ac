"""visibility_packed on a device."""

import numpy as np
from numpy.typing import ArrayLike

from kdtree.reference.arrays import Words

from ._plan import Array, Device, as_parents, refuse_parents

__all__ = ["launch", "visibility_packed"]

ROWS = 8  # warps a block


def visibility_packed(device: Device, parent_BN: ArrayLike, node_count_B: ArrayLike) -> Words:
    """Pack the ancestor-only mask into words; see `kdtree.reference.visibility_packed`."""
    parents, counts = as_parents(device, parent_BN, node_count_B)
    B, N = parents.shape
    visible_BNW: Words = device.empty((B, N, -(-N // 64)), np.uint64)
    status_B = device.empty(B, np.int32)
    launch(device, parents, counts, visible_BNW, status_B)
    refuse_parents(device, status_B, parents, counts)
    return visible_BNW


def launch(device: Device, parent_BN: Array, node_count_B: Array, visible_BNW: Array, status_B: Array) -> None:
    """Fill the words; status is 1 where parents are no tree, and its words are 0."""
    B, N = parent_BN.shape
    arguments = [parent_BN, node_count_B, np.int64(N), visible_BNW, status_B]
    device.launch("visibility_packed", "visibility_packed", B * (N // ROWS + 1), 32 * ROWS, arguments)
