"""top_k on a device."""

import numpy as np

from kdtree.reference.arrays import Float, count, sizes
from kdtree.reference.top_k import TopK
from kdtree.reference.top_k import top_k as truth

from ._plan import Array, Device, refuse
from ._products import REALS, real

__all__ = ["VARIANTS", "launch", "top_k"]

VARIANTS = REALS
MOST_ENTRIES = 8192  # a power of two; those of float64 fill 96 KiB


def top_k(device: Device, logit_TV: Float, k: int) -> TopK:
    """Return the most probable tokens of each row; see `kdtree.reference.top_k`. ValueError also for k over 8192."""
    logits = device.floats("logit_TV", logit_TV)
    size = sizes(logit_TV=logits)
    T, V = size["T"], size["V"]
    K = min(count("k", k), V)
    if K > MOST_ENTRIES:
        raise ValueError(f"k: got {k}, needs at most {MOST_ENTRIES}")
    best = TopK(device.empty((T, K), logits.dtype), device.empty((T, K), np.int32))
    status_T = device.empty(T, np.int32)
    launch(device, logits, best, status_T)
    refuse(device, status_T, lambda logit_TV: truth(logit_TV, k), logits)
    return best


def launch(device: Device, logit_TV: Array, best: TopK, status_T: Array) -> None:
    """Fill both; status is 1 where no logit of a row is finite or one is NaN or +inf, and its log-probs are -inf."""
    (T, V), K = logit_TV.shape, best.token_TK.shape[1]
    at_least_V = max(32, 1 << (V - 1).bit_length())
    threads = min(at_least_V, 4096 // logit_TV.dtype.itemsize)  # MOST_THREADS of the source
    capacity = min(at_least_V, MOST_ENTRIES)
    shared_bytes = capacity * (logit_TV.dtype.itemsize + 4)
    arguments = [logit_TV, np.int64(V), np.int32(K), np.int32(capacity), *best, status_T]
    device.launch("top_k", "top_k", T, threads, arguments, shared_bytes=shared_bytes, REAL=real(logit_TV.dtype))
