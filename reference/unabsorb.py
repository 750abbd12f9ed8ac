"""From mixed latents to the values of each head."""

import numpy as np

from .arrays import Float, sizes

__all__ = ["unabsorb"]


def unabsorb(latent_THC: Float, v_b_HMC: Float) -> Float:
    """Project after the mixing instead of before it: sum of p (W_v c) = W_v (sum of p c), for each head.

    Parameters
    ----------
    latent_THC : float, shape (T, H, C)
    v_b_HMC : float, shape (H, M, C)
        From latents to the values of each head.

    Returns
    -------
    value_THM : float, shape (T, H, M)

    Invariants
    ----------
    - absorbed and expanded attention agree (test_absorbed_attention_equals_expanded_attention)
    """
    sizes(latent_THC=latent_THC, v_b_HMC=v_b_HMC)
    return np.ascontiguousarray((latent_THC.transpose(1, 0, 2) @ v_b_HMC.transpose(0, 2, 1)).transpose(1, 0, 2))
