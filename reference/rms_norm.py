"""Root-mean-square normalisation."""

import numpy as np

from .arrays import Float, sizes

__all__ = ["rms_norm"]


def rms_norm(x_TD: Float, weight_D: Float, eps: float) -> Float:
    """Scale each row to unit mean square, then by the weight: w x / sqrt(mean(x^2) + eps).

    Parameters
    ----------
    x_TD : float, shape (T, D)
    weight_D : float, shape (D,)
    eps : float
        Added to the mean square, so that a row of zeros stays zero.

    Returns
    -------
    y_TD : float, shape (T, D), the dtype of x

    Examples
    --------
    >>> rms_norm(np.array([[3.0, 4.0]]), np.ones(2), 0.0) @ np.array([1.0, -1.0])
    array([-0.28284271])
    """
    sizes(x_TD=x_TD, weight_D=weight_D)
    mean_square_T1 = np.mean(x_TD * x_TD, axis=1, keepdims=True, dtype=x_TD.dtype)
    return weight_D * (x_TD / np.sqrt(mean_square_T1 + x_TD.dtype.type(eps)))
