"""unabsorb on a device."""

import numpy as np

from kdtree.reference.arrays import Float, sizes

from ._plan import Array, Device
from ._products import REALS, THREADS, column_tiles, one_precision, real, row_tiles

__all__ = ["VARIANTS", "launch", "unabsorb"]

VARIANTS = REALS


def unabsorb(device: Device, latent_THC: Float, v_b_HMC: Float) -> Float:
    """Project mixed latents to values, each row to the same bits as alone; see `kdtree.reference.unabsorb`."""
    latent, v_b = one_precision(device, latent_THC=latent_THC, v_b_HMC=v_b_HMC)
    size = sizes(latent_THC=latent, v_b_HMC=v_b)
    value_THM: Float = device.empty((size["T"], size["H"], size["M"]), latent.dtype)
    launch(device, latent, v_b, value_THM)
    return value_THM


def launch(device: Device, latent_THC: Array, v_b_HMC: Array, value_THM: Array) -> None:
    """Fill the values."""
    (T, H, C), M = latent_THC.shape, v_b_HMC.shape[1]
    arguments = [latent_THC, v_b_HMC, *map(np.int64, (T, H, C, M)), value_THM]
    grid = row_tiles(T) * column_tiles(M), H
    device.launch("unabsorb", "unabsorb", grid, THREADS, arguments, REAL=real(value_THM.dtype))
