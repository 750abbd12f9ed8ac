"""route on a device."""

from functools import lru_cache

import numpy as np

from kdtree.reference.arrays import Float, sizes
from kdtree.reference.route import Routing
from kdtree.reference.route import route as truth

from ._plan import Array, Device, refuse
from ._products import REALS, one_precision, real

__all__ = ["VARIANTS", "launch", "route"]

VARIANTS = REALS


def route(
    device: Device,
    logit_TE: Float,
    bias_E: Float,
    top_k: int,
    n_group: int,
    topk_group: int,
    normalise: bool,
    scale: float,
    scoring: str,
) -> Routing:
    """Choose experts by biased scores, and weigh them by unbiased ones; see `kdtree.reference.route`."""
    logits, bias = one_precision(device, logit_TE=logit_TE, bias_E=bias_E)
    T, E = sizes(logit_TE=logits, bias_E=bias).values()
    switches = top_k, n_group, topk_group, normalise, scale, scoring
    check_switches(E, *switches)
    routing = Routing(device.empty((T, top_k), np.int32), device.empty((T, top_k), logits.dtype))
    status_T = device.empty(T, np.int32)
    launch(device, logits, bias, *switches, routing, status_T)

    def check(logits: Array) -> None:
        truth(logits, np.zeros(E), *switches)

    refuse(device, status_T, check, logits)
    return routing


@lru_cache
def check_switches(E: int, *switches: object) -> None:
    """Raise what the truth raises for these switches, whatever the logits."""
    truth(np.zeros((0, E)), np.zeros(E), *switches)  # type: ignore[arg-type]


def launch(
    device: Device,
    logit_TE: Array,
    bias_E: Array,
    top_k: int,
    n_group: int,
    topk_group: int,
    normalise: bool,
    scale: float,
    scoring: str,
    routing: Routing,
    status_T: Array,
) -> None:
    """Fill the routing; status is 1 where a logit is NaN, and its row names any experts."""
    (T, E), dtype, softmax = logit_TE.shape, logit_TE.dtype, scoring == "softmax"
    numbers = [*map(np.int32, (E, top_k, n_group, topk_group, normalise))]
    factor = dtype.type(1 if softmax else scale)
    arguments = [logit_TE, bias_E, *numbers, factor, np.int32(softmax), *routing, status_T]
    shared_bytes = (2 * E + n_group) * dtype.itemsize
    device.launch("route", "route", T, 32, arguments, shared_bytes=shared_bytes, REAL=real(dtype))
