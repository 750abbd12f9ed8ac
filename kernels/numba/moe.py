"""moe on the CPU: the rows of each expert side by side, through one product a matrix."""

import numpy as np
from numba import float32, float64, int64, void

from kdtree.reference.arrays import Float, Index, integers, sizes
from kdtree.reference.moe import check_experts
from kdtree.reference.swiglu import swiglu

from ._jit import device, inp, kernel, out
from ._products import one_precision, products

__all__ = ["moe"]


def moe(x_TD: Float, expert_TK: Index, weight_TK: Float, gate_EFD: Float, up_EFD: Float, down_EDF: Float) -> Float:
    """Sum the outputs of each row's experts, to the same bits as alone; see `kdtree.reference.moe`."""
    expert_TK = integers("expert_TK", expert_TK)
    size = sizes(
        x_TD=x_TD, expert_TK=expert_TK, weight_TK=weight_TK, gate_EFD=gate_EFD, up_EFD=up_EFD, down_EDF=down_EDF
    )
    x, weight, gate, up, down = one_precision(
        x_TD=x_TD, weight_TK=weight_TK, gate_EFD=gate_EFD, up_EFD=up_EFD, down_EDF=down_EDF
    )
    check_experts(expert_TK, size["E"])
    expert_P = expert_TK.ravel()
    pair_J = np.argsort(expert_P, kind="stable")
    expert_J, row_J = expert_P[pair_J], pair_J // max(size["K"], 1)
    x_JD = x[row_J]
    inner_JF = swiglu(products(x_JD, gate, expert_J), products(x_JD, up, expert_J))
    y_TD = np.zeros_like(x)
    scatter_add = scatter_float32 if x.dtype == np.float32 else scatter_float64
    scatter_add(products(inner_JF, down, expert_J), row_J, weight.ravel()[pair_J], y_TD)
    return y_TD


@device
def scatter(y_JD, row_J, weight_J, y_TD):
    """Add outputs of experts to their rows, in the order of experts."""
    for j in range(len(row_J)):
        for d in range(y_JD.shape[1]):
            y_TD[row_J[j], d] += weight_J[j] * y_JD[j, d]


@kernel(void, inp(float32, 2), inp(int64, 1), inp(float32, 1), out(float32, 2))
def scatter_float32(y_JD, row_J, weight_J, y_TD):
    """Scatter in float32."""
    scatter(y_JD, row_J, weight_J, y_TD)


@kernel(void, inp(float64, 2), inp(int64, 1), inp(float64, 1), out(float64, 2))
def scatter_float64(y_JD, row_J, weight_J, y_TD):
    """Scatter in float64."""
    scatter(y_JD, row_J, weight_J, y_TD)
