"""absorb on the CPU: each query adds up the rows of its head's matrix."""

import numpy as np

from kdtree.reference.arrays import Float, sizes

from ._products import mixtures, one_precision

__all__ = ["absorb"]


def absorb(q_nope_THU: Float, k_b_HUC: Float) -> Float:
    """Move queries to the space of latents, each row to the same bits as alone; see `kdtree.reference.absorb`."""
    size = sizes(q_nope_THU=q_nope_THU, k_b_HUC=k_b_HUC)
    H, U, C = (size[letter] for letter in "HUC")
    q_nope_HTU, k_b = one_precision(q_nope_THU=q_nope_THU.transpose(1, 0, 2), k_b_HUC=k_b_HUC)
    row_HU = np.arange(H * U, dtype=np.int32).reshape(H, U)
    q_latent_HTC = mixtures(q_nope_HTU, row_HU, np.full(H, U, np.int32), k_b.reshape(H * U, C), C)
    return np.ascontiguousarray(q_latent_HTC.transpose(1, 0, 2))
