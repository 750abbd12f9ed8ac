"""INT4 weights as compressed-tensors packs them: eight codes a word, one scale for 32 inputs of a row."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import Index, count, floats, integers, sizes
from .errors import ShapeError

__all__ = ["GROUP", "NIBBLES", "Quantized", "bf16_nearest", "int4_pack", "int4_quantize", "int4_unpack"]

GROUP = 32  #: inputs of a row that share one scale
NIBBLES = 8  #: codes in an int32 word
SHIFTS = 4 * np.arange(NIBBLES, dtype=np.uint32)
BF16_EPS = np.float32(2.0**-7)
WEIGHT_LIMIT = 2.0**126  # below it, no code times its scale overflows


class Quantized(NamedTuple):
    """Codes -8..7 and the scale of each group of inputs."""

    code_OI: NDArray[np.int8]
    scale_OG: NDArray[np.float32]


def int4_pack(code_OI: ArrayLike) -> Index:
    """Pack codes -8..7 into int32 words, the first code in the lowest four bits.

    word[o, w] = sum over k = 0..7 of (code[o, 8 w + k] + 8) * 16**k; codes past the last are 0 bits.

    Parameters
    ----------
    code_OI : array_like of int, shape (O, I)
        Codes from -8 to 7.

    Returns
    -------
    int32 array, shape (O, ceil(I / 8))

    Raises
    ------
    ShapeError
        A shape or a dtype is wrong.
    ValueError
        A code is outside -8..7.

    Invariants
    ----------
    - unpacking returns the codes (test_unpacking_returns_what_was_packed)
    - compressed-tensors packs the same words (test_codes_pack_and_unpack_as_in_compressed_tensors)

    Examples
    --------
    >>> int4_pack([[-8, -7, 7]])
    array([[3856]], dtype=int32)
    """
    code_OI = integers("code_OI", code_OI)
    sizes(code_OI=code_OI)
    rows, width = code_OI.shape
    if code_OI.size and not -8 <= code_OI.min() <= code_OI.max() <= 7:
        raise ValueError(f"code_OI: got values from {code_OI.min()} to {code_OI.max()}, needs -8 to 7")
    nibble_OI = np.zeros((rows, -(-width // NIBBLES) * NIBBLES), np.uint32)
    nibble_OI[:, :width] = code_OI + 8
    nibble_OWK = nibble_OI.reshape(rows, nibble_OI.shape[1] // NIBBLES, NIBBLES)
    word_OW: NDArray[np.uint32] = np.bitwise_or.reduce(nibble_OWK << SHIFTS, axis=2)
    return word_OW.view(np.int32)


def int4_unpack(packed_OW: ArrayLike, in_features: int) -> NDArray[np.int8]:
    """Return the codes -8..7 of packed words, cut to the real width.

    Parameters
    ----------
    packed_OW : array_like of int, shape (O, W)
        Words of `int4_pack`, W = ceil(in_features / 8). Bits past the last code may be anything.
    in_features : int
        I, codes in a row.

    Returns
    -------
    int8 array, shape (O, in_features)

    Raises
    ------
    ShapeError
        A shape or a dtype is wrong, or W does not fit in_features.

    Examples
    --------
    >>> int4_unpack([[3856]], 3)
    array([[-8, -7,  7]], dtype=int8)
    """
    packed_OW = integers("packed_OW", packed_OW)
    sizes(packed_OW=packed_OW)
    width, (rows, words) = count("in_features", in_features), packed_OW.shape
    if words != -(-width // NIBBLES):
        raise ShapeError(f"packed_OW: got shape {(rows, words)}, needs {-(-width // NIBBLES)} words for {width} inputs")
    nibble_OWK = (packed_OW.view(np.uint32)[:, :, None] >> SHIFTS) & 15
    nibble_OI = nibble_OWK.reshape(rows, words * NIBBLES)[:, :width]
    return np.ascontiguousarray(nibble_OI.astype(np.int8) - np.int8(8))


def int4_quantize(weight_OI: ArrayLike) -> Quantized:
    """Quantise a bfloat16 matrix to INT4, each group of 32 inputs by its largest magnitude.

    scale = bf16(max |w| / 7.5) over the group, 2**-7 where that is 0; code = clip(rint(bf16(w / scale)), -8, 7).

    Parameters
    ----------
    weight_OI : array_like of float, shape (O, I)
        Rounded to bfloat16 first. The last group of a row may be short.

    Returns
    -------
    Quantized
        `code_OI`, int8, and `scale_OG`, float32 with bfloat16 values, G = ceil(I / 32).

    Raises
    ------
    ShapeError
        A shape or a dtype is wrong.
    ValueError
        A weight is not finite, or 2**126 or more in magnitude.

    Source
    ------
    compressed-tensors 0.20.1: minmax observer, symmetric.

    Invariants
    ----------
    - a weight moves by half a scale at most, up to bfloat16 (test_a_quantised_weight_moves_by_half_a_scale_at_most)
    - compressed-tensors finds the same (test_scales_and_codes_are_those_of_compressed_tensors)

    Examples
    --------
    >>> int4_quantize([[7.5, -7.5, 0.4]])
    Quantized(code_OI=array([[ 7, -8,  0]], dtype=int8), scale_OG=array([[1.]], dtype=float32))
    """
    weight_OI = floats("weight_OI", weight_OI)
    sizes(weight_OI=weight_OI)
    if not (np.abs(weight_OI) < WEIGHT_LIMIT).all():
        raise ValueError("weight_OI: got a weight that is not finite or not below 2**126 in magnitude")
    rows, width = weight_OI.shape
    groups = -(-width // GROUP)
    padded_OGI: NDArray[np.float32] = np.zeros((rows, groups, GROUP), np.float32)
    padded_OGI.reshape(rows, groups * GROUP)[:, :width] = bf16_nearest(weight_OI.astype(np.float32))
    largest_OG = np.asarray(np.abs(padded_OGI).max(axis=2, initial=0), np.float32)
    scale_OG = bf16_nearest(np.asarray(largest_OG / 7.5, np.float32))
    scale_OG = np.where(scale_OG == 0, BF16_EPS, scale_OG)
    code_OGI = np.clip(np.rint(bf16_nearest(padded_OGI / scale_OG[:, :, None])), -8, 7).astype(np.int8)
    return Quantized(np.ascontiguousarray(code_OGI.reshape(rows, groups * GROUP)[:, :width]), scale_OG)


def bf16_nearest(value: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round finite float32 values to the nearest bfloat16, ties to even, and return them as float32.

    Invariants
    ----------
    - it is ml_dtypes' rounding (test_rounding_to_bfloat16_is_that_of_ml_dtypes)
    """
    bits = value.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
