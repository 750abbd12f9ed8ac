"""embed on a device."""

import numpy as np

from kdtree.reference.arrays import Float, Index, sizes
from kdtree.reference.embed import embed as truth

from ._plan import Array, Device, refuse
from ._products import REALS, THREADS, real

__all__ = ["VARIANTS", "embed", "launch"]

VARIANTS = REALS


def embed(device: Device, token_T: Index, weight_VD: Float) -> Float:
    """Look tokens up; see `kdtree.reference.embed`."""
    tokens, weight = device.integers("token_T", token_T), device.floats("weight_VD", weight_VD)
    size = sizes(token_T=tokens, weight_VD=weight)
    x_TD: Float = device.empty((size["T"], size["D"]), weight.dtype)
    status_T = device.empty(size["T"], np.int32)
    launch(device, tokens, weight, x_TD, status_T)

    def check(tokens: Array) -> None:
        truth(tokens, np.empty((size["V"], 0)))

    refuse(device, status_T, check, tokens)
    return x_TD


def launch(device: Device, token_T: Array, weight_VD: Array, x_TD: Array, status_T: Array) -> None:
    """Fill x; status is 1 where there is no such token, and its row is 0."""
    V, D = weight_VD.shape
    arguments = [token_T, weight_VD, np.int64(V), np.int64(D), x_TD, status_T]
    device.launch("embed", "embed", len(token_T), THREADS, arguments, REAL=real(x_TD.dtype))
