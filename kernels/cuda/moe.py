"""moe on a device."""

from typing import NamedTuple

import numpy as np

from kdtree.reference.arrays import Float, Index, sizes
from kdtree.reference.moe import check_experts

from ._plan import Array, Device, refuse
from ._products import REALS, THREADS, column_tiles, one_precision, real

__all__ = ["VARIANTS", "Mixture", "Scratch", "launch", "moe"]

VARIANTS = REALS


class Mixture(NamedTuple):
    """The arguments, on the device."""

    x_TD: Array
    expert_TK: Array
    weight_TK: Array
    gate_EFD: Array
    up_EFD: Array
    down_EDF: Array


class Scratch(NamedTuple):
    """What the kernels hand on, for P = T K pairs of a row and its expert."""

    pair_P: Array  #: int32, the pairs in order of experts
    start_E: Array  #: int32, shape (E + 1,), where each expert's pairs begin there
    inner_PF: Array  #: silu(gate x) * up x of each pair
    out_PD: Array


def moe(
    device: Device,
    x_TD: Float,
    expert_TK: Index,
    weight_TK: Float,
    gate_EFD: Float,
    up_EFD: Float,
    down_EDF: Float,
) -> Float:
    """Sum the outputs of each row's experts, to the same bits as alone; see `kdtree.reference.moe`."""
    experts = device.integers("expert_TK", expert_TK)
    x, *others = one_precision(
        device, x_TD=x_TD, weight_TK=weight_TK, gate_EFD=gate_EFD, up_EFD=up_EFD, down_EDF=down_EDF
    )
    mixture = Mixture(x, experts, *others)
    T, D, K, E, F = sizes(**mixture._asdict()).values()
    scratch = Scratch(
        device.empty(T * K, np.int32),
        device.empty(E + 1, np.int32),
        device.empty((T * K, F), x.dtype),
        device.empty((T * K, D), x.dtype),
    )
    y_TD: Float = device.empty((T, D), x.dtype)
    status_T = device.empty(T, np.int32)
    launch(device, mixture, scratch, y_TD, status_T)

    def check(experts: Array) -> None:
        check_experts(experts, E)

    refuse(device, status_T, check, experts)
    return y_TD


def launch(device: Device, mixture: Mixture, scratch: Scratch, y_TD: Array, status_T: Array) -> None:
    """Fill y; status is 1 where an expert is not there or comes twice, and its row is 0."""
    x, experts, weights, gate, up, down = mixture
    (T, D), K, (E, F, _) = x.shape, experts.shape[1], gate.shape
    variant = real(x.dtype)
    pair_P, start_E, inner_PF, out_PD = scratch
    by_expert = [experts, pair_P, start_E]
    arguments = [experts, np.int64(T * K), np.int32(E), pair_P, start_E]
    device.launch("moe", "moe_sort", (E + 1) * 32 // THREADS + 1, THREADS, arguments, REAL=variant)
    arguments = [x, *by_expert, gate, up, np.int32(E), np.int32(K), np.int64(D), np.int64(F), inner_PF]
    device.launch("moe", "moe_gate_up", (T * K, column_tiles(F)), THREADS, arguments, REAL=variant)
    arguments = [inner_PF, *by_expert, down, np.int32(E), np.int64(F), np.int64(D), out_PD]
    device.launch("moe", "moe_down", (T * K, column_tiles(D)), THREADS, arguments, REAL=variant)
    arguments = [out_PD, experts, weights, np.int32(E), np.int32(K), np.int64(D), y_TD, status_T]
    device.launch("moe", "moe_add", T, THREADS, arguments, shared_bytes=4 * K, REAL=variant)
