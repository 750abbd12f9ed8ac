"""Rotary position embedding, in both pair layouts, and the frequencies of plain and YaRN-stretched models."""

from math import ceil, floor, log, pi

import numpy as np
from numpy.typing import NDArray

from .arrays import Float, Index, integers, sizes
from .config import Yarn
from .errors import ShapeError

__all__ = ["inverse_frequencies", "rope"]


def rope(x_THR: Float, position_T: Index, inv_freq_J: NDArray[np.float64], scale: float, interleave: bool) -> Float:
    """Rotate pair j of each vector by position * inv_freq[j].

    A pair is (x[2j], x[2j + 1]) if interleaved and (x[j], x[j + R/2]) if not. The result has the layout of halves in
    both cases, first members then second members, as Hugging Face stores it: a score needs queries and keys to agree.

    Parameters
    ----------
    x_THR : float, shape (T, H, R)
    position_T : int, shape (T,)
        Absolute positions. In a tree it is prefix length + depth, never the slot.
    inv_freq_J : float64, shape (R / 2,), radians per position
    scale : float
        Multiplies cos and sin.
    interleave : bool
        True for DeepSeek and Kimi, False for NeoX.

    Returns
    -------
    y_THR : float, shape (T, H, R), the dtype of x
        Angles are float64. Hugging Face forms them in float32, which differs by 5e-4 at position 32768.

    Invariants
    ----------
    - scores depend on differences of positions alone (test_scores_depend_on_the_difference_of_positions)
    - the layouts differ by a permutation (test_the_two_rope_layouts_differ_by_a_permutation)

    Examples
    --------
    >>> q = rope(np.array([[[0.0, 1.0, 0.0, 0.0]]]), np.array([1]), np.array([1.0, 0.01]), 1.0, interleave=True)
    >>> round(float(q[0, 0, 0]), 6)  # the score with [1, 0, 0, 0] at position 0 is -sin 1
    -0.841471
    """
    position_T = integers("position_T", position_T)
    R = sizes(x_THR=x_THR, position_T=position_T, inv_freq_J=inv_freq_J)["R"]
    if 2 * len(inv_freq_J) != R:
        raise ShapeError(f"inv_freq_J: got {len(inv_freq_J)} frequencies, needs R / 2 for R = {R}")
    angle_TJ = position_T[:, None].astype(np.float64) * inv_freq_J
    cos_T1J = (np.cos(angle_TJ) * scale).astype(x_THR.dtype)[:, None]
    sin_T1J = (np.sin(angle_TJ) * scale).astype(x_THR.dtype)[:, None]
    if interleave:
        first, second = x_THR[:, :, 0::2], x_THR[:, :, 1::2]
    else:
        first, second = x_THR[:, :, : R // 2], x_THR[:, :, R // 2 :]
    rotated = first * cos_T1J - second * sin_T1J, second * cos_T1J + first * sin_T1J
    return np.concatenate(rotated, axis=2)


def inverse_frequencies(R: int, theta: float, yarn: Yarn | None) -> NDArray[np.float64]:
    """Return theta^(-2j/R), shape (R / 2,), radians per position, stretched by YaRN if there is one.

    YaRN keeps pairs that turn often within the trained length, divides those that turn rarely by the factor, and ramps
    linearly between. Source: arXiv 2309.00071 and the implementation of Hugging Face.
    """
    inv_freq_J = np.power(theta, -np.arange(0, R, 2) / R, dtype=np.float64)
    if yarn is None:
        return inv_freq_J
    low, high = ramp_ends(yarn, R, theta)
    ramp_J = np.clip((np.arange(R // 2) - low) / (high - low), 0, 1)
    return np.asarray(inv_freq_J * (1 - ramp_J) + inv_freq_J / yarn.factor * ramp_J)


def ramp_ends(yarn: Yarn, R: int, theta: float) -> tuple[float, float]:
    """Return the pairs that turn beta_fast and beta_slow times within the trained length."""

    def pair_of(turns: float) -> float:
        return R * log(yarn.original_max_position_embeddings / (turns * 2 * pi)) / (2 * log(theta))

    low, high = pair_of(yarn.beta_fast), pair_of(yarn.beta_slow)
    if yarn.truncate:
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, R - 1)
    return low, high + 0.001 if low == high else high
