"""unabsorb on the CPU: products, a matrix a head."""

import numpy as np

from kdtree.reference.arrays import Float, sizes

from ._products import one_precision, products

__all__ = ["unabsorb"]


def unabsorb(latent_THC: Float, v_b_HMC: Float) -> Float:
    """Project mixed latents to values, each row to the same bits as alone; see `kdtree.reference.unabsorb`."""
    size = sizes(latent_THC=latent_THC, v_b_HMC=v_b_HMC)
    T, H, M, C = (size[letter] for letter in "THMC")
    latent_HTC, v_b = one_precision(latent_THC=latent_THC.transpose(1, 0, 2), v_b_HMC=v_b_HMC)
    head_J = np.repeat(np.arange(H, dtype=np.int32), T)
    value_HTM = products(latent_HTC.reshape(H * T, C), v_b, head_J).reshape(H, T, M)
    return np.ascontiguousarray(value_HTM.transpose(1, 0, 2))
