"""accept_greedy on a device."""

import numpy as np
from numpy.typing import ArrayLike

from kdtree.reference.accept_greedy import Acceptance, Walk
from kdtree.reference.arrays import sizes
from kdtree.reference.tree_checks import check_links

from ._plan import Array, Device, refuse

__all__ = ["accept_greedy", "launch"]


def accept_greedy(
    device: Device,
    token_BN: ArrayLike,
    first_child_BN: ArrayLike,
    next_sibling_BN: ArrayLike,
    node_count_B: ArrayLike,
    target_token_BN: ArrayLike,
) -> Acceptance:
    """Walk down the tree along the target's tokens; see `kdtree.reference.accept_greedy`."""
    given = Walk(token_BN, first_child_BN, next_sibling_BN, node_count_B, target_token_BN)  # type: ignore[arg-type]
    walk = Walk(*[device.integers(name, value) for name, value in given._asdict().items()])
    sizes(**walk._asdict())
    B, N = walk.token_BN.shape
    accepted = Acceptance(*[device.empty(shape, np.int32) for shape in ((B, N), B, B)])
    status_B = device.empty(B, np.int32)
    launch(device, walk, accepted, status_B)
    refuse(device, status_B, check_links, walk.first_child_BN, walk.next_sibling_BN, walk.node_count_B)
    return accepted


def launch(device: Device, walk: Walk, accepted: Acceptance, status_B: Array) -> None:
    """Fill the acceptance; status is 1 where links are no tree, and nothing is accepted there, not even the root."""
    B, N = walk.token_BN.shape
    arguments = [*walk, np.int64(N), *accepted, status_B]
    device.launch("accept_greedy", "accept_greedy", B, 128, arguments, shared_bytes=4 * N)
