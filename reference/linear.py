"""A linear map without a bias."""

from .arrays import Float, sizes

__all__ = ["linear"]


def linear(x_TI: Float, weight_OI: Float) -> Float:
    """Map each row: y = x W^T.

    Parameters
    ----------
    x_TI : float, shape (T, I)
    weight_OI : float, shape (O, I)

    Returns
    -------
    y_TO : float, shape (T, O)
        A matrix product may round a row differently with the number of rows beside it; see `transformer.forward`.
        numba's does not.

    Cost
    ----
    O(T I O).

    Examples
    --------
    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[11.,  2.]])
    """
    sizes(x_TI=x_TI, weight_OI=weight_OI)
    return x_TI @ weight_OI.T
