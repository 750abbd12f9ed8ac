"""compact_cache on a device."""

import numpy as np

from kdtree.reference.arrays import Float, Index, sizes
from kdtree.reference.compact_cache import compact_cache as truth
from kdtree.reference.errors import ShapeError

from ._plan import Array, Device, refuse

__all__ = ["compact_cache", "launch"]

THREADS, MOST_BLOCKS = 128, 1024  # a block checks every path, so a large cache has not more of them
WORD = 16  # bytes that a thread moves


def compact_cache(device: Device, kv_YBSX: Float, prefix_len_B: Index, path_BN: Index, accept_len_B: Index) -> Index:
    """Move the rows of each accepted path behind its prefix, in place; see `kdtree.reference.compact_cache`.

    `kv_YBSX` is an array of the device itself, numpy's or CuPy's, of any dtype, C-ordered: no copy would do.
    """
    paths = device.integers("path_BN", path_BN)
    accepted = device.integers("accept_len_B", accept_len_B)
    prefixes = device.integers("prefix_len_B", prefix_len_B)
    length_B, status_B = (device.empty(prefixes.shape, np.int32) for _ in range(2))
    if not isinstance(kv_YBSX, type(length_B)):
        kind = type(length_B)
        raise TypeError(f"kv_YBSX: got {type(kv_YBSX).__name__}, needs {kind.__module__}.{kind.__name__}")
    if not kv_YBSX.flags.c_contiguous:
        raise ShapeError("kv_YBSX: got an array with gaps or axes in another order, needs a C-ordered one")
    size = sizes(kv_YBSX=kv_YBSX, prefix_len_B=prefixes, path_BN=paths, accept_len_B=accepted)

    def check_paths(prefix_len_B: Index, path_BN: Index, accept_len_B: Index) -> None:
        truth(np.empty((0, *(size[letter] for letter in "BSX"))), prefix_len_B, path_BN, accept_len_B)  # of no layer

    launch(device, kv_YBSX, prefixes, paths, accepted, length_B, status_B)
    refuse(device, status_B, check_paths, prefixes, paths, accepted)
    return length_B  # type: ignore[no-any-return]


def launch(
    device: Device,
    kv_YBSX: Array,
    prefix_len_B: Array,
    path_BN: Array,
    accept_len_B: Array,
    length_B: Array,
    status_B: Array,
) -> None:
    """Compact the cache; status is 1 where a path is none, and then no row of any sequence is moved or accepted."""
    (Y, B, S, X), N = kv_YBSX.shape, path_BN.shape[1]
    row_bytes = X * kv_YBSX.dtype.itemsize
    blocks = -(-Y * B * row_bytes // (WORD * THREADS))
    limits = [np.int64(number) for number in (Y, B, S, N, row_bytes)]
    arguments = [kv_YBSX, prefix_len_B, path_BN, accept_len_B, *limits, length_B, status_B]
    device.launch("compact_cache", "compact_cache", max(1, min(blocks, MOST_BLOCKS)), THREADS, arguments)
