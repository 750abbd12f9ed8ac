"""The token that a greedy target writes."""

import numpy as np

from .arrays import Float, Index, sizes

__all__ = ["argmax"]


def argmax(logit_TV: Float) -> Index:
    """Return the token of the largest logit, the lowest of equal ones.

    Parameters
    ----------
    logit_TV : float, shape (T, V)

    Returns
    -------
    token_T : int32, shape (T,)

    Raises
    ------
    ValueError
        A logit is NaN: it would become a token and blow up later.

    Examples
    --------
    >>> argmax(np.array([[1.0, 3.0, 3.0]]))
    array([1], dtype=int32)
    """
    sizes(logit_TV=logit_TV)
    for t in np.flatnonzero(np.isnan(logit_TV).any(axis=1)):
        raise ValueError(f"logit_TV: got NaN at row {t}, needs numbers")
    return np.asarray(logit_TV.argmax(axis=1), np.int32)
