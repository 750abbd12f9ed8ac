"""The gate of a gated MLP."""

import numpy as np

from .arrays import Float, sizes

__all__ = ["swiglu"]


def swiglu(gate_TF: Float, up_TF: Float) -> Float:
    """Return silu(gate) * up, elementwise, with silu(x) = x / (1 + exp(-x)).

    Parameters
    ----------
    gate_TF, up_TF : float, shape (T, F)

    Returns
    -------
    y_TF : float, shape (T, F)

    Examples
    --------
    >>> swiglu(np.array([[0.0, -1000.0]]), np.array([[1.0, 1.0]]))
    array([[ 0., -0.]])
    """
    sizes(gate_TF=gate_TF, up_TF=up_TF)
    with np.errstate(over="ignore"):  # exp(-x) = inf gives -0, the right limit
        return np.asarray(gate_TF / (1 + np.exp(-gate_TF)) * up_TF)
