"""Rows of a token table."""

import numpy as np

from .arrays import Float, Index, integers, sizes

__all__ = ["embed"]


def embed(token_T: Index, weight_VD: Float) -> Float:
    """Look tokens up.

    Parameters
    ----------
    token_T : int, shape (T,)
    weight_VD : float, shape (V, D)

    Returns
    -------
    x_TD : float, shape (T, D)

    Raises
    ------
    ValueError
        A token is not from 0 to V - 1.
    """
    token_T = integers("token_T", token_T)
    V = sizes(token_T=token_T, weight_VD=weight_VD)["V"]
    for t in np.flatnonzero((token_T < 0) | (token_T >= V)):
        raise ValueError(f"token_T: got {token_T[t]} at row {t}, needs 0 to {V - 1}")
    return weight_VD[token_T]
