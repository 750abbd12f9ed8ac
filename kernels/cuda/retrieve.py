"""retrieve on a device."""

import numpy as np
from numpy.typing import ArrayLike

from kdtree.reference.retrieve import Links

from ._plan import Array, Device, as_parents, refuse_parents

__all__ = ["launch", "retrieve"]


def retrieve(device: Device, parent_BN: ArrayLike, node_count_B: ArrayLike) -> Links:
    """Link each slot to its first child and its next sibling; see `kdtree.reference.retrieve`."""
    parents, counts = as_parents(device, parent_BN, node_count_B)
    links = Links(device.empty(parents.shape, np.int32), device.empty(parents.shape, np.int32))
    status_B = device.empty(len(counts), np.int32)
    launch(device, parents, counts, links, status_B)
    refuse_parents(device, status_B, parents, counts)
    return links


def launch(device: Device, parent_BN: Array, node_count_B: Array, links: Links, status_B: Array) -> None:
    """Fill the links; status is 1 where parents are no tree, and its links are -1."""
    B, N = parent_BN.shape
    device.launch("retrieve", "retrieve", B, 256, [parent_BN, node_count_B, np.int64(N), *links, status_B])
