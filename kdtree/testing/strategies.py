"""Bounded inputs for property tests of trees and words, with the hard cases drawn on purpose.

Log-prob rows have exact ties, plateaus, neighbours one ulp apart and -inf tails; trees come from parent lists, so a
failing one shrinks towards a star or a chain; sizes straddle the widths of warps, words and tiles.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from kdtree.reference.arrays import Float, Index

__all__ = [
    "DTYPES", "EDGE_SIZES", "EXACT", "TAIL", "TIE", "ULP", "Arguments", "budgets", "caches", "descending",
    "links_by_definition", "marginals", "node_counts", "packed_weights", "parent_batches", "parent_lists", "walks",
]  # fmt: skip

Arguments: TypeAlias = tuple[Any, ...]  #: of an op, by position: numpy arrays and numbers

TIE, ULP, TAIL = 0, 1, 9  # what a step code does to the log-prob before it; other codes subtract code / 8
DTYPES: st.SearchStrategy[type[np.floating[Any]]] = st.sampled_from([np.float32, np.float64])
EDGE_SIZES = (31, 32, 33, 63, 64, 65, 127, 128, 129)


def descending(steps_BLK: NDArray[np.int64], dtype: type[np.floating[Any]]) -> Float:
    """Turn step codes into log-prob rows, largest first."""
    rows: Float = np.zeros(steps_BLK.shape, dtype)
    last: Float = np.zeros(steps_BLK.shape[:2], dtype)
    ended = np.zeros(steps_BLK.shape[:2], bool)
    for r in range(steps_BLK.shape[2]):
        step = steps_BLK[:, :, r]
        ended |= step == TAIL
        last = np.where(step == ULP, np.nextafter(last, dtype(-np.inf)), last - step.astype(dtype) / dtype(8))
        rows[:, :, r] = np.where(ended, dtype(-np.inf), last)
    return rows


@st.composite
def marginals(
    draw: st.DrawFn,
    max_batch: int = 3,
    max_depth: int = 4,
    max_width: int = 5,
    exact: bool = False,
    tails: bool = True,
) -> tuple[Index, Float, Index]:
    """Draw (root_token_B, top_logprob_BLK, top_token_BLK); with `exact`, every sum of log-probs is exact in float64."""
    shape = tuple(draw(st.integers(low, high)) for low, high in ((1, max_batch), (0, max_depth), (0, max_width)))
    codes = [TIE, 2, 3, 5] + [ULP] * (not exact) + [TAIL] * tails
    steps = draw(npst.arrays(np.int64, shape, elements=st.sampled_from(codes)))
    dtype = draw(DTYPES)
    token = draw(npst.arrays(np.int32, shape, elements=st.integers(0, 6)))  # few, so that rows repeat tokens
    root = draw(npst.arrays(np.int32, shape[0], elements=st.integers(0, 6)))
    return root, descending(steps, dtype), token


budgets = st.one_of(st.integers(0, 12), st.integers(0, 200))


def node_counts(max_nodes: int = 129) -> st.SearchStrategy[int]:
    """Draw the size of a tree: small, or next to the width of a warp, a word or a tile."""
    return st.one_of(st.integers(1, 12), st.sampled_from([n for n in EDGE_SIZES if n <= max_nodes] or [1]))


@st.composite
def parent_lists(draw: st.DrawFn, max_nodes: int = 129) -> list[int]:
    """Draw the parents of one tree, parents before children."""
    n = draw(node_counts(max_nodes))
    shape = draw(st.sampled_from(["any", "star", "chain"]))
    if shape == "star":
        return [-1] + [0] * (n - 1)
    if shape == "chain":
        return list(range(-1, n - 1))
    return [-1] + [draw(st.integers(0, i - 1)) for i in range(1, n)]


@st.composite
def parent_batches(draw: st.DrawFn, max_batch: int = 3, max_nodes: int = 129) -> tuple[Index, Index]:
    """Draw (parent_BN, node_count_B), with garbage in the padded slots."""
    trees = draw(st.lists(parent_lists(max_nodes), min_size=1, max_size=max_batch))
    N = max(map(len, trees)) + draw(st.integers(0, 3))
    garbage = draw(st.sampled_from([-1, 0, 7, -(2**31), 2**31 - 1]))
    parent_BN = np.full((len(trees), N), garbage, np.int32)
    for b, parents in enumerate(trees):
        parent_BN[b, : len(parents)] = parents
    return parent_BN, np.array([len(parents) for parents in trees], np.int32)


@st.composite
def walks(draw: st.DrawFn, max_nodes: int = 40) -> tuple[Index, Index, Index, Index, Index]:
    """Draw the arguments of accept_greedy; few tokens, so that walks go deep and siblings repeat."""
    parent_BN, node_count_B = draw(parent_batches(max_nodes=max_nodes))
    tokens = npst.arrays(np.int32, parent_BN.shape, elements=st.integers(0, 2))
    first_child_BN, next_sibling_BN = links_by_definition(parent_BN, node_count_B)
    return draw(tokens), first_child_BN, next_sibling_BN, node_count_B, draw(tokens)


def links_by_definition(parent_BN: Index, node_count_B: Index) -> tuple[Index, Index]:
    """Link each slot to its first child and next sibling, straight from the lists of children."""
    first_child_BN, next_sibling_BN = np.full(parent_BN.shape, -1), np.full(parent_BN.shape, -1)
    for b, n in enumerate(node_count_B):
        for slot in range(n):
            children = [child for child in range(1, n) if parent_BN[b, child] == slot]
            for child, sibling in zip([None, *children], [*children, -1], strict=True):
                if child is None:
                    first_child_BN[b, slot] = sibling
                else:
                    next_sibling_BN[b, child] = sibling
    return first_child_BN.astype(np.int32), next_sibling_BN.astype(np.int32)


@st.composite
def caches(draw: st.DrawFn) -> tuple[NDArray[Any], Index, Index, Index]:
    """Draw the arguments of compact_cache, the cache off the borders of words and with garbage behind paths."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    Y, B, N = draw(st.integers(0, 3)), draw(st.integers(0, 4)), draw(st.sampled_from([1, 2, 7, 8, 9, 33]))
    S, X = N + draw(st.integers(0, 5)), draw(st.sampled_from([0, 1, 3, 4, 8, 17, 576]))
    dtype = np.dtype(draw(st.sampled_from(["f8", "f4", "f2", "u2", "u1"])))
    start, size = draw(st.integers(0, 4)), Y * B * S * X
    kv_YBSX = rng.integers(0, 255, start + size).astype(dtype)[start:].reshape(Y, B, S, X)
    path_BN, accept_len_B = np.full((B, N), draw(st.sampled_from([-1, 2**31 - 1])), np.int32), np.zeros(B, np.int32)
    for b in range(B):
        path = np.flatnonzero(rng.random(N) < draw(st.sampled_from([0.1, 0.5, 1.0])))
        path = np.unique([0, *path])[: draw(st.sampled_from([0, N]))]
        path_BN[b, : len(path)], accept_len_B[b] = path, len(path)
    return kv_YBSX, rng.integers(0, S - N + 1, B).astype(np.int32), path_BN, accept_len_B


@st.composite
def packed_weights(draw: st.DrawFn) -> tuple[Index, Float, int, bool]:
    """Draw the arguments of int4_dequant: any words, any finite scales, widths that leave nibbles over."""
    rows, width = draw(st.integers(0, 3)), draw(st.integers(0, 70))
    words = npst.arrays(np.int32, (rows, -(-width // 8)))
    scales = npst.arrays(np.float32, (rows, -(-width // 32)), elements=st.floats(-(2.0**100), 2.0**100, width=32))
    return draw(words), draw(scales), width, draw(st.booleans())


EXACT: Mapping[str, st.SearchStrategy[Arguments]] = {  #: by op whose results are equal bit for bit: its arguments
    "tree_build": st.tuples(marginals(), budgets, st.integers(0, 3)).map(lambda t: (*t[0], t[1], t[2])),
    "visibility": parent_batches(),
    "visibility_packed": parent_batches(),
    "visibility_intervals": parent_batches(),
    "retrieve": parent_batches(),
    "accept_greedy": walks(),
    "compact_cache": caches(),
    "int4_dequant": packed_weights(),
}
