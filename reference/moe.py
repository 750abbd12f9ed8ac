"""The routed experts of a mixture."""

import numpy as np

from .arrays import Float, Index, integers, sizes
from .linear import linear
from .swiglu import swiglu

__all__ = ["check_experts", "moe"]


def moe(x_TD: Float, expert_TK: Index, weight_TK: Float, gate_EFD: Float, up_EFD: Float, down_EDF: Float) -> Float:
    """Sum the outputs of each row's experts: y = sum over k of weight_k down_k(silu(gate_k x) * up_k x).

    Parameters
    ----------
    x_TD : float, shape (T, D)
    expert_TK : int, shape (T, K)
        Experts of each row, each at most once.
    weight_TK : float, shape (T, K)
    gate_EFD, up_EFD : float, shape (E, F, D)
    down_EDF : float, shape (E, D, F)

    Returns
    -------
    y_TD : float, shape (T, D)
        Experts are added in the order of their index, weights applied after the down projection.

    Raises
    ------
    ShapeError
        A shape does not fit the argument's name.
    ValueError
        There is no such expert.

    Cost
    ----
    O(T K D F).

    Invariants
    ----------
    - with identity experts it scales its input (test_identity_experts_scale_the_input)
    """
    expert_TK = integers("expert_TK", expert_TK)
    sizes(x_TD=x_TD, expert_TK=expert_TK, weight_TK=weight_TK, gate_EFD=gate_EFD, up_EFD=up_EFD, down_EDF=down_EDF)
    check_experts(expert_TK, len(gate_EFD))
    y_TD = np.zeros_like(x_TD)
    for e in np.unique(expert_TK):
        row, k = np.nonzero(expert_TK == e)
        inner = swiglu(linear(x_TD[row], gate_EFD[e]), linear(x_TD[row], up_EFD[e]))
        y_TD[row] += weight_TK[row, k, None] * linear(inner, down_EDF[e])
    return y_TD


def check_experts(expert_TK: Index, E: int) -> None:
    """Raise ValueError unless every entry names an expert, and no row names one twice."""
    for t, k in np.argwhere((expert_TK < 0) | (expert_TK >= E)):
        raise ValueError(f"expert_TK: got {expert_TK[t, k]} at row {t}, needs 0 to {E - 1}")
    sorted_TK = np.sort(expert_TK, axis=1)
    for t in np.flatnonzero((sorted_TK[:, 1:] == sorted_TK[:, :-1]).any(axis=1)):
        raise ValueError(f"expert_TK: got {expert_TK[t].tolist()} at row {t}, needs each expert at most once")
