"""absorb on a device."""

import numpy as np

from kdtree.reference.arrays import Float, sizes

from ._plan import Array, Device
from ._products import REALS, one_precision, real, row_tiles

__all__ = ["VARIANTS", "absorb", "launch"]

VARIANTS = REALS
COLUMNS = 128  # threads a block


def absorb(device: Device, q_nope_THU: Float, k_b_HUC: Float) -> Float:
    """Move queries to the space of latents, each row to the same bits as alone; see `kdtree.reference.absorb`."""
    q_nope, k_b = one_precision(device, q_nope_THU=q_nope_THU, k_b_HUC=k_b_HUC)
    size = sizes(q_nope_THU=q_nope, k_b_HUC=k_b)
    q_latent_THC: Float = device.empty((size["T"], size["H"], size["C"]), q_nope.dtype)
    launch(device, q_nope, k_b, q_latent_THC)
    return q_latent_THC


def launch(device: Device, q_nope_THU: Array, k_b_HUC: Array, q_latent_THC: Array) -> None:
    """Fill the queries."""
    (T, H, U), C = q_nope_THU.shape, k_b_HUC.shape[2]
    arguments = [q_nope_THU, k_b_HUC, *map(np.int64, (T, H, U, C)), q_latent_THC]
    grid = row_tiles(T) * -(-C // COLUMNS), H
    device.launch("absorb", "absorb", grid, COLUMNS, arguments, REAL=real(q_latent_THC.dtype))
