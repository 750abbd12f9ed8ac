"""visibility_intervals on a device."""

import numpy as np
from numpy.typing import ArrayLike

from kdtree.reference.visibility_intervals import Intervals

from ._plan import Array, Device, as_parents, refuse_parents

__all__ = ["launch", "visibility_intervals"]


def visibility_intervals(device: Device, parent_BN: ArrayLike, node_count_B: ArrayLike) -> Intervals:
    """Number the slots in preorder; see `kdtree.reference.visibility_intervals`."""
    parents, counts = as_parents(device, parent_BN, node_count_B)
    intervals = Intervals(device.empty(parents.shape, np.int32), device.empty(parents.shape, np.int32))
    status_B = device.empty(len(counts), np.int32)
    launch(device, parents, counts, intervals, status_B)
    refuse_parents(device, status_B, parents, counts)
    return intervals


def launch(device: Device, parent_BN: Array, node_count_B: Array, intervals: Intervals, status_B: Array) -> None:
    """Fill the intervals; status is 1 where parents are no tree, and all its slots are as padded ones."""
    B, N = parent_BN.shape
    arguments = [parent_BN, node_count_B, np.int64(N), *intervals, status_B]
    device.launch("visibility_intervals", "visibility_intervals", B, 256, arguments, shared_bytes=2 * 4 * N)
