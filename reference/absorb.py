"""From queries to the space of latents, so that keys need not be formed."""

import numpy as np

from .arrays import Float, sizes

__all__ = ["absorb"]


def absorb(q_nope_THU: Float, k_b_HUC: Float) -> Float:
    """Move the key projection to the query: q . (W_k c) = (q W_k) . c, for each head.

    Parameters
    ----------
    q_nope_THU : float, shape (T, H, U)
        The part of the queries without rotation.
    k_b_HUC : float, shape (H, U, C)
        From latents to the keys of each head.

    Returns
    -------
    q_latent_THC : float, shape (T, H, C)

    Invariants
    ----------
    - absorbed and expanded attention agree (test_absorbed_attention_equals_expanded_attention)
    """
    sizes(q_nope_THU=q_nope_THU, k_b_HUC=k_b_HUC)
    return np.ascontiguousarray((q_nope_THU.transpose(1, 0, 2) @ k_b_HUC).transpose(1, 0, 2))
