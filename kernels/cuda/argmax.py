"""argmax on a device."""

import numpy as np

from kdtree.reference.argmax import argmax as truth
from kdtree.reference.arrays import Float, Index, sizes

from ._plan import Array, Device, refuse
from ._products import REALS, real

__all__ = ["VARIANTS", "argmax", "launch"]

VARIANTS = REALS


def argmax(device: Device, logit_TV: Float) -> Index:
    """Return the token of the largest logit, the lowest of equal ones; see `kdtree.reference.argmax`."""
    logits = device.floats("logit_TV", logit_TV)
    T = sizes(logit_TV=logits)["T"]
    token_T: Index = device.empty(T, np.int32)
    status_T = device.empty(T, np.int32)
    launch(device, logits, token_T, status_T)
    refuse(device, status_T, truth, logits)
    return token_T


def launch(device: Device, logit_TV: Array, token_T: Array, status_T: Array) -> None:
    """Fill the tokens; status is 1 where a logit is NaN, and the token is 0."""
    T, V = logit_TV.shape
    threads = min(1024, -(-max(V, 1) // 32) * 32)
    device.launch("argmax", "argmax", T, threads, [logit_TV, np.int64(V), token_T, status_T], REAL=real(logit_TV.dtype))
