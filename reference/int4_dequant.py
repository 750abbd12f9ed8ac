"""From packed INT4 codes to weights."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import floats, sizes
from .errors import ShapeError
from .int4 import GROUP, bf16_nearest, int4_unpack

__all__ = ["int4_dequant"]

SCALE_LIMIT = 2.0**124  # below it, no product with a code overflows, rounded or not


def int4_dequant(
    packed_OW: ArrayLike, scale_OG: ArrayLike, in_features: int, rounded: bool = True
) -> NDArray[np.float32]:
    """Return the weights of a matrix that compressed-tensors packed as symmetric INT4 in groups of 32.

    weight[o, i] = code[o, i] * scale[o, i // 32] with code[o, i] = (packed[o, i // 8] >> 4 (i % 8) & 15) - 8, rounded
    to the nearest bfloat16 (ties to even) unless `rounded` is False.

    Parameters
    ----------
    packed_OW : array_like of int, shape (O, ceil(in_features / 8))
        `weight_packed`. Bits past the last code may be anything.
    scale_OG : array_like of float32, shape (O, ceil(in_features / 32))
        `weight_scale`, which a checkpoint stores as bfloat16.
    in_features : int
        I, the real width: `weight_shape[1]`.
    rounded : bool
        True: what compressed-tensors returns. False: the float32 product, exact for bfloat16 scales, as kernels that
        fold the scale into their sum compute it.

    Returns
    -------
    float32 array, shape (O, in_features)

    Raises
    ------
    ShapeError
        A shape or a dtype is wrong, or does not fit in_features.
    ValueError
        A scale is not finite, or 2**124 or more in magnitude.

    Source
    ------
    compressed-tensors 0.20.1, format pack-quantized.

    Cost
    ----
    O(O I).

    Invariants
    ----------
    - every weight is its code times its scale (test_every_weight_is_its_code_times_its_scale)
    - both results are bit-equal to compressed-tensors (test_weights_are_bit_equal_to_compressed_tensors)
    - bits past the last code do not matter (test_padding_nibbles_do_not_matter)

    Examples
    --------
    >>> int4_dequant([[3856]], np.float32([[0.5]]), 3)
    array([[-4. , -3.5,  3.5]], dtype=float32)
    """
    code_OI = int4_unpack(packed_OW, in_features)
    scale_OG = floats("scale_OG", scale_OG)
    rows, groups = sizes(code_OI=code_OI)["O"], -(-code_OI.shape[1] // GROUP)
    if scale_OG.shape != (rows, groups) or scale_OG.dtype != np.float32:
        raise ShapeError(f"scale_OG: got {scale_OG.dtype} {scale_OG.shape}, needs float32 {(rows, groups)}")
    for o, g in np.argwhere(~(np.abs(scale_OG) < SCALE_LIMIT)):
        raise ValueError(f"scale_OG: got {scale_OG[o, g]} at row {o}, group {g}; needs finite scales below 2**124")
    scale_OI = np.repeat(scale_OG.astype(np.float32, copy=False), GROUP, axis=1)[:, : code_OI.shape[1]]
    product_OI = code_OI * scale_OI
    return bf16_nearest(product_OI) if rounded else product_OI
