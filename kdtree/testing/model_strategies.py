"""Bounded arguments for the ops of a model: sizes on both sides of a vector, values of order one, none subnormal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from kdtree import ops
from kdtree.reference.arrays import Float

from .strategies import DTYPES, Arguments, parent_batches

__all__ = ["ROUNDED", "attentions", "lookups", "maps", "mixtures", "norms", "numbers", "rotations", "routings", "sized"]

WIDTHS = st.sampled_from([1, 2, 3, 7, 8, 9, 16, 20, 33, 64, 65, 80])
FEW = st.integers(1, 4)
ROWS = st.sampled_from([0, 1, 2, 3, 5, 9])


@st.composite
def numbers(draw: st.DrawFn, dtype: type[np.floating[Any]], *shape: int, low: float = -2.0, high: float = 2.0) -> Float:
    """Draw an array: random, on a coarse grid with exact zeros and ties, or one number everywhere."""
    kind = draw(st.sampled_from(["random", "grid", "constant"]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    if kind == "constant":
        return np.full(shape, draw(st.sampled_from([low, 0.1, 1.0, high])), dtype)
    array = rng.uniform(low, high, shape)
    return (array if kind == "random" else np.round(array * 2) / 2).astype(dtype)


@st.composite
def sized(
    draw: st.DrawFn, /, letters: str, *names: str, **fixed: st.SearchStrategy[int]
) -> tuple[dict[str, int], type[np.floating[Any]], list[Float]]:
    """Draw arrays of one precision; the suffix of each name is its shape, T few rows and the other letters widths."""
    dtype = draw(DTYPES)
    size = {letter: draw(ROWS if letter == "T" else fixed.get(letter, WIDTHS)) for letter in letters}
    return size, dtype, [draw(numbers(dtype, *(size[letter] for letter in name))) for name in names]


@st.composite
def maps(draw: st.DrawFn, /, letters: str, *names: str, **fixed: st.SearchStrategy[int]) -> Arguments:
    """Draw the arguments of an op that takes arrays alone."""
    return tuple(draw(sized(letters, *names, **fixed))[2])


@st.composite
def norms(draw: st.DrawFn) -> Arguments:
    """Draw the arguments of rms_norm."""
    _, _, (x_TD, weight_D) = draw(sized("TD", "TD", "D"))
    return x_TD, weight_D, draw(st.sampled_from([1e-6, 1e-5]))


@st.composite
def rotations(draw: st.DrawFn) -> Arguments:
    """Draw the arguments of rope."""
    size, dtype, _ = draw(sized("THJ", H=FEW, J=st.integers(1, 20)))
    x_THR = draw(numbers(dtype, size["T"], size["H"], 2 * size["J"]))
    position_T = draw(npst.arrays(np.int32, size["T"], elements=st.integers(0, 500)))
    inv_freq_J = 10000.0 ** -(np.arange(size["J"]) / size["J"])
    return x_THR, position_T, inv_freq_J, draw(st.sampled_from([1.0, 1.25])), draw(st.booleans())


@st.composite
def routings(draw: st.DrawFn) -> Arguments:
    """Draw the arguments of route."""
    n_group, of_group = draw(st.sampled_from([(1, 8), (4, 2), (2, 3), (1, 2)]))
    logit_TE, bias_E = draw(maps("TE", "TE", "E", E=st.just(n_group * of_group)))
    topk_group = draw(st.integers(1, n_group))
    top_k = draw(st.integers(1, topk_group * of_group))
    switches = draw(st.tuples(st.booleans(), st.sampled_from([1.0, 2.5]), st.sampled_from(["sigmoid", "softmax"])))
    return logit_TE, bias_E, top_k, n_group, topk_group, *switches


@st.composite
def mixtures(draw: st.DrawFn) -> Arguments:
    """Draw the arguments of moe; each row has its experts once, some experts have no row."""
    size, dtype, arrays = draw(sized("TDFE", "TD", "EFD", "EFD", "EDF", E=st.integers(1, 6)))
    K = draw(st.integers(1, size["E"]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    expert_TK = np.array([rng.permutation(size["E"])[:K] for _ in range(size["T"])], np.int32).reshape(-1, K)
    weight_TK = draw(numbers(dtype, size["T"], K, low=0.0))
    x_TD, gate_EFD, up_EFD, down_EDF = arrays
    return x_TD, expert_TK, weight_TK, gate_EFD / 8, up_EFD / 8, down_EDF / 8


@st.composite
def attentions(draw: st.DrawFn, max_nodes: int = 33) -> Arguments:
    """Draw the arguments of verify_attention, with NaN in padded slots and in rows past the last real one."""
    parent_BN, node_count_B = draw(parent_batches(max_nodes=max_nodes))
    B, N = parent_BN.shape
    dtype, H, C, R = draw(DTYPES), draw(FEW), draw(WIDTHS), draw(st.integers(1, 9))
    prefix_len_B = draw(npst.arrays(np.int32, B, elements=st.sampled_from([0, 1, 3, 70])))
    S = int((prefix_len_B + node_count_B).max()) + draw(st.integers(0, 3))
    q_latent, q_rope, kv = (draw(numbers(dtype, *shape)) for shape in ((B, N, H, C), (B, N, H, R), (B, S, C + R)))
    for b, (P, n) in enumerate(zip(prefix_len_B, node_count_B, strict=True)):
        q_latent[b, n:] = q_rope[b, n:] = kv[b, P + n :] = np.nan
    visible_BNN = ops.visibility(parent_BN, node_count_B)
    if draw(st.booleans()):  # a mask need not be a tree's, and a slot may see nothing
        visible_BNN &= np.random.default_rng(draw(st.integers(0, 99))).random((B, N, N)) < 0.7
    return q_latent, q_rope, kv, prefix_len_B, visible_BNN, node_count_B, draw(st.sampled_from([0.1, 1.0]))


@st.composite
def lookups(draw: st.DrawFn) -> Arguments:
    """Draw the arguments of embed."""
    size, dtype, _ = draw(sized("TVD"))
    token_T = draw(npst.arrays(np.int32, size["T"], elements=st.integers(0, size["V"] - 1)))
    return token_T, draw(numbers(dtype, size["V"], size["D"]))


ROUNDED: Mapping[str, st.SearchStrategy[Arguments]] = {  #: by op whose results are rounded: its arguments
    "absorb": maps("THUC", "THU", "HUC", H=FEW),
    "argmax": maps("TV", "TV"),
    "embed": lookups(),
    "linear": maps("TIO", "TI", "OI"),
    "moe": mixtures(),
    "rms_norm": norms(),
    "rope": rotations(),
    "route": routings(),
    "swiglu": maps("TF", "TF", "TF"),
    "top_k": st.tuples(maps("TV", "TV"), st.integers(1, 9)).map(lambda t: (*t[0], t[1])),
    "unabsorb": maps("THMC", "THC", "HMC", H=FEW),
    "verify_attention": attentions(),
}
