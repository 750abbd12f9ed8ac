"""verify_attention on a device.

Beside float32 and float64 it takes numbers of two bytes, if all are of one kind: float16, and bfloat16 as uint16, for
numpy and CuPy have no dtype for it. They are multiplied and summed in float32, and so are the results.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from kdtree.reference.arrays import Bool, Float, Index, sizes
from kdtree.reference.errors import ShapeError
from kdtree.reference.verify_attention import Attended, check_attention

from ._plan import Array, Device, refuse
from ._products import one_precision
from ._source import SHARED_LIMIT

__all__ = ["VARIANTS", "Operands", "Parts", "empty_parts", "launch", "plan", "span_of", "verify_attention"]

WARPS = 8  # a block
TYPES = {  # REAL and INPUT, by dtype
    "float32": ("float", "float"),
    "float64": ("double", "double"),
    "float16": ("float", "Half"),
    "uint16": ("float", "Bfloat"),
}
REGISTERS = 144  # that a lane may have for queries and mixtures


class Operands(NamedTuple):
    """The arrays of `verify_attention` on a device; the first three have one dtype."""

    q_latent_BNHC: Array
    q_rope_BNHR: Array
    kv_BSX: Array
    prefix_len_B: Array
    visible_BNN: Array
    node_count_B: Array


class Parts(NamedTuple):
    """What each of the T = N H rows has of each of G spans of keys."""

    mixed_BGTC: Array  #: sum of exp(score - peak) c
    peak_BGT: Array  #: largest score
    sum_BGT: Array  #: sum of exp(score - peak), 0 where the row sees nothing; its mixture is not written then


def verify_attention(
    device: Device,
    q_latent_BNHC: Float,
    q_rope_BNHR: Float,
    kv_BSX: Float,
    prefix_len_B: Index,
    visible_BNN: Bool,
    node_count_B: Index,
    scale: float,
) -> Attended:
    """Let each slot attend to the whole prefix, its ancestors and itself; see `kdtree.reference.verify_attention`."""
    q_latent, q_rope, kv = numbers(device, q_latent_BNHC=q_latent_BNHC, q_rope_BNHR=q_rope_BNHR, kv_BSX=kv_BSX)
    operands = Operands(
        q_latent,
        q_rope,
        kv,
        device.integers("prefix_len_B", prefix_len_B),
        device.bools("visible_BNN", visible_BNN),
        device.integers("node_count_B", node_count_B),
    )
    size = sizes(**operands._asdict())
    B, N, H, C, R, S = (size[letter] for letter in "BNHCRS")
    if size["X"] != C + R:
        raise ShapeError(f"kv_BSX: got rows of {size['X']}, needs C + R = {C + R}")
    dtype = np.float64 if operands.kv_BSX.dtype == np.float64 else np.float32
    attended = Attended(device.empty((B, N, H, C), dtype), device.empty((B, N, H), dtype))
    span, status_B = span_of(S), device.empty(B, np.int32)
    launch(device, operands, scale, empty_parts(device, attended, S, span), attended, status_B, span)
    refuse(device, status_B, check_attention, *operands)
    return attended


def numbers(device: Device, **arrays: Array) -> list[Array]:
    """Bring arrays to the device, in one of TYPES; ShapeError for others, and for two bytes beside other numbers."""
    given = {name: device.array(name, array) for name, array in arrays.items()}
    dtypes = {name: array.dtype for name, array in given.items()}
    if not any(dtype in (np.float16, np.uint16) for dtype in dtypes.values()):
        return one_precision(device, **given)
    first, *others = dtypes
    for name in others:
        if dtypes[name] != dtypes[first]:
            raise ShapeError(f"{name}: got dtype {dtypes[name]}, needs {dtypes[first]} as {first}")
    return [array if array.flags.c_contiguous else array.copy() for array in given.values()]


def span_of(S: int) -> int:
    """Return how many keys of a cache of S rows a block takes: 256, or so many that there are at most 16 spans."""
    span = 256
    while span * 16 < S:
        span *= 2
    return span


def empty_parts(device: Device, attended: Attended, S: int, span: int) -> Parts:
    """Return room for what a launch leaves between its two kernels."""
    B, N, H, C = attended.latent_BNHC.shape
    dtype, shape = attended.latent_BNHC.dtype, (B, max(1, -(-S // span)), N * H)
    return Parts(device.empty((*shape, C), dtype), device.empty(shape, dtype), device.empty(shape, dtype))


def plan(C: int, R: int, dtype: DTypeLike) -> tuple[int, int, dict[str, Any]]:
    """Return rows and shared memory of a block, and the macros: as many rows a warp as registers, keys as memory hold.

    A key of a tile is padded to whole vectors of the lanes. No row's bits depend on the rows beside it.
    """
    real, number = TYPES[np.dtype(dtype).name]
    itemsize = 8 if real == "double" else 4
    twos, fours = max(1, -(-(C + R) // 64)), max(1, -(-C // 128))
    a_row = (2 * twos + 4 * fours) * itemsize // 4
    rows = next((rows for rows in (4, 2) if rows * a_row <= REGISTERS), 1)
    a_key = (max(64 * twos, 128 * fours) + WARPS * rows) * itemsize + 8
    keys = next((keys for keys in (32, 16) if keys * a_key + 8 <= SHARED_LIMIT), 8)
    macros = {"REAL": real, "INPUT": number, "X_TWOS": twos, "C_FOURS": fours, "ROWS_A_WARP": rows, "KEYS": keys}
    return WARPS * rows, keys * a_key + 8, macros


VARIANTS = tuple(plan(512, 64, dtype)[2] for dtype in TYPES)


def launch(
    device: Device,
    operands: Operands,
    scale: float,
    parts: Parts,
    attended: Attended,
    status_B: Array,
    span: int,
) -> None:
    """Fill the results; status is 1 where a count or a length is out of range, and 0 and -inf are the results there.

    The span of keys, a multiple of 32, changes roundings; nothing else that is chosen here does.
    """
    q_latent, q_rope, kv = operands[:3]
    B, N, H, C = q_latent.shape
    S, R, real = kv.shape[1], q_rope.shape[3], attended.lse_BNH.dtype.type
    block_rows, shared_bytes, defines = plan(C, R, kv.dtype)
    spans = parts.peak_BGT.shape[1]
    shape = [np.int64(size) for size in (N, H, C, R, S)]
    given = [*operands, real(scale), *shape, np.int64(span), *parts, status_B]
    grid = N * H // block_rows + 1, spans, B
    device.launch("verify_attention", "verify_attention_spans", grid, 32 * WARPS, given, shared_bytes, **defines)
    counts = operands.prefix_len_B, operands.node_count_B
    shape = [np.int64(size) for size in (N, H, C, S, spans)]
    given = [*parts, *counts, *shape, attended.latent_BNHC, attended.lse_BNH]
    device.launch("verify_attention", "verify_attention_merge", (N * H, B), 128, given, **defines)
