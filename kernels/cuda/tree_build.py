"""tree_build on a device."""

import numpy as np
from numpy.typing import ArrayLike

from kdtree.reference.arrays import Float, Index, count, sizes
from kdtree.reference.tree_batch import Candidates, TreeBatch, check_candidates

from ._plan import Array, Device, refuse
from ._products import REALS, real

__all__ = ["VARIANTS", "launch", "tree_build"]

VARIANTS = REALS
THREADS = 256  # the first warp grows the tree
BYTES = 24  # of shared memory a slot


def tree_build(
    device: Device,
    root_token_B: ArrayLike,
    top_logprob_BLK: ArrayLike,
    top_token_BLK: ArrayLike,
    budget: int,
    pad_token: int = 0,
) -> TreeBatch:
    """Build best-first trees; see `kdtree.reference.tree_build`. ValueError for a budget beyond the shared memory."""
    given = Candidates(
        device.integers("root_token_B", root_token_B),
        device.floats("top_logprob_BLK", top_logprob_BLK),
        device.integers("top_token_BLK", top_token_BLK),
        count("budget", budget),
        count("pad_token", pad_token),
    )
    arrays = {name: getattr(given, name) for name in ("root_token_B", "top_logprob_BLK", "top_token_BLK")}
    B, N = sizes(**arrays)["B"], given.budget + 1
    token_BN, depth_BN, parent_BN, rank_BN = (device.empty((B, N), np.int32) for _ in range(4))
    logw_BN, node_count_B = device.empty((B, N), np.float64), device.empty(B, np.int32)
    trees = TreeBatch(token_BN, depth_BN, parent_BN, rank_BN, logw_BN, node_count_B)
    status_B = device.empty(B, np.int32)
    launch(device, given, trees, status_B)
    refuse(device, status_B, check_arrays, *arrays.values())
    return trees


def check_arrays(root_token_B: Index, top_logprob_BLK: Float, top_token_BLK: Index) -> None:
    """Raise ValueError for a value that no candidate may have."""
    check_candidates(Candidates(root_token_B, top_logprob_BLK, top_token_BLK, 0, 0))


def launch(device: Device, given: Candidates, trees: TreeBatch, status_B: Array) -> None:
    """Fill the trees; status is 1 where a value is none that a candidate may have, and the tree is its root alone."""
    (B, L, K), variant = given.top_logprob_BLK.shape, real(given.top_logprob_BLK.dtype)
    limits = np.int64(L), np.int64(K), np.int32(given.budget), np.int32(given.pad_token)
    arguments = [given.root_token_B, given.top_logprob_BLK, given.top_token_BLK, *limits, *trees, status_B]
    shared_bytes = BYTES * (given.budget + 1)
    device.launch("tree_build", "tree_build", B, THREADS, arguments, shared_bytes=shared_bytes, REAL=variant)
