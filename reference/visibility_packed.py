"""The ancestor-only mask, 64 slots to a word."""

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Words
from .visibility import visibility

__all__ = ["visibility_packed"]


def visibility_packed(parent_BN: ArrayLike, node_count_B: ArrayLike) -> Words:
    """Pack the rows of `visibility` into words: bit j % 64 of word j // 64 is visible[i, j].

    Parameters
    ----------
    parent_BN, node_count_B
        As in `visibility`.

    Returns
    -------
    visible_BNW : uint64, shape (B, N, W)
        W = ceil(N / 64) words a row; bits past N and the rows of padded slots are 0.

    Raises
    ------
    ShapeError, TreeError
        As in `visibility`.

    Cost
    ----
    O(B N**2) time, O(B N W) memory for the result.

    Invariants
    ----------
    - the three forms say the same (test_the_three_forms_of_visibility_agree)

    Examples
    --------
    >>> [bin(row[0]) for row in visibility_packed([[-1, 0, 0, 1]], [4])[0]]
    ['0b1', '0b11', '0b101', '0b1011']
    """
    visible_BNN = visibility(parent_BN, node_count_B)
    B, N, _ = visible_BNN.shape
    W = -(-N // 64)
    bits_BNWJ = np.zeros((B, N, W * 64), np.bool_)
    bits_BNWJ[:, :, :N] = visible_BNN
    octets = np.packbits(bits_BNWJ, axis=-1, bitorder="little")
    return octets.view("<u8").astype(np.uint64, copy=False)
