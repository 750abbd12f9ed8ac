"""A batch of draft trees as arrays: what every tree builder returns."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import Float, Index, count, floats, integers, sizes

__all__ = [
    "NO_NODE",
    "ROOT",
    "Candidates",
    "Node",
    "TreeBatch",
    "as_candidates",
    "check_candidates",
    "empty_batch",
    "put_nodes",
    "root_only",
]

ROOT = 0
NO_NODE = -1


Node: TypeAlias = tuple[int, tuple[int, ...], float]
"""A node below the root: slot of its parent, ranks of its path from the root, logw."""


class TreeBatch(NamedTuple):
    """B trees, each padded to N = budget + 1 slots; slot 0 is the root and parents precede children.

    `node_count_B` alone says how many slots are real. In a padded slot token is the pad token, depth 0, parent and
    rank -1, logw -inf (so that exp(logw) adds nothing to any sum).
    """

    token_BN: Index  #: token of the slot; the root's is the last committed token
    depth_BN: Index  #: 0 at the root, 1..L below it; the slot's position is prefix length + depth
    parent_BN: Index  #: slot of the parent, NO_NODE at the root
    rank_BN: Index  #: column of the slot's token in its row of the marginals, NO_NODE at the root
    logw_BN: NDArray[np.float64]  #: log q(path to the slot), nats; 0 at the root
    node_count_B: Index  #: real slots, the root included: 1..N


class Candidates(NamedTuple):
    """The checked arguments of a tree builder."""

    root_token_B: Index
    top_logprob_BLK: Float
    top_token_BLK: Index
    budget: int
    pad_token: int


def as_candidates(
    root_token_B: ArrayLike, top_logprob_BLK: ArrayLike, top_token_BLK: ArrayLike, budget: int, pad_token: int
) -> Candidates:
    """Convert the arguments of a tree builder and check their shapes and dtypes; `check_candidates` checks values.

    Raises
    ------
    ShapeError
        A shape or dtype does not fit the name.
    ValueError
        The budget is negative, or an integer does not fit int32.
    TypeError
        The budget or the pad token is not an integer.
    """
    given = Candidates(
        integers("root_token_B", root_token_B),
        floats("top_logprob_BLK", top_logprob_BLK),
        integers("top_token_BLK", top_token_BLK),
        count("budget", budget),
        count("pad_token", pad_token),
    )
    sizes(root_token_B=given.root_token_B, top_logprob_BLK=given.top_logprob_BLK, top_token_BLK=given.top_token_BLK)
    return given


def check_candidates(given: Candidates) -> None:
    """Raise ValueError unless tokens are 0 or more and every row of log-probs descends, without NaN and +inf."""
    for name in ("root_token_B", "top_token_BLK"):
        token = getattr(given, name)
        if token.size and token.min() < 0:
            raise ValueError(f"{name}: got token {token.min()}, needs 0 or more")
    logprob_BLK = given.top_logprob_BLK
    bad_BLK = np.isnan(logprob_BLK) | (logprob_BLK == np.inf)
    if bad_BLK.any():
        b, d, r = np.argwhere(bad_BLK)[0]
        raise ValueError(
            f"top_logprob_BLK: got {logprob_BLK[b, d, r]} at batch row {b}, depth {d + 1}, rank {r}; "
            "needs finite log-probs, or -inf for no candidate"
        )
    rises_BLK = logprob_BLK[:, :, 1:] > logprob_BLK[:, :, :-1]
    if rises_BLK.any():
        b, d, r = np.argwhere(rises_BLK)[0]
        raise ValueError(
            f"top_logprob_BLK: got {logprob_BLK[b, d, r + 1]} after {logprob_BLK[b, d, r]} at batch row {b}, "
            f"depth {d + 1}, rank {r + 1}; needs each row sorted, largest first"
        )


def empty_batch(B: int, budget: int) -> TreeBatch:
    """Return trees of B rows and budget + 1 slots whose contents are undefined, for a kernel to fill."""
    shape = B, budget + 1
    return TreeBatch(
        np.empty(shape, np.int32),
        np.empty(shape, np.int32),
        np.empty(shape, np.int32),
        np.empty(shape, np.int32),
        np.empty(shape, np.float64),
        np.empty(B, np.int32),
    )


def root_only(given: Candidates) -> TreeBatch:
    """Return trees of the root alone, padded to budget + 1 slots, for a builder to add nodes to."""
    trees = empty_batch(len(given.root_token_B), given.budget)
    trees.token_BN[:] = given.pad_token
    trees.token_BN[:, ROOT] = given.root_token_B
    trees.depth_BN[:] = 0
    trees.parent_BN[:] = NO_NODE
    trees.rank_BN[:] = NO_NODE
    trees.logw_BN[:] = -np.inf
    trees.logw_BN[:, ROOT] = 0.0
    trees.node_count_B[:] = 1
    return trees


def put_nodes(trees: TreeBatch, b: int, nodes: Sequence[Node], top_token_LK: Index) -> None:
    """Put nodes, parents first, into the slots after the root of batch row b."""
    if not nodes:
        return
    parents, ranks, logws = zip(*nodes, strict=True)
    slots = slice(1, 1 + len(nodes))
    depths = np.array([len(path) for path in ranks])
    last_ranks = np.array([path[-1] for path in ranks])
    trees.token_BN[b, slots] = top_token_LK[depths - 1, last_ranks]
    trees.depth_BN[b, slots] = depths
    trees.parent_BN[b, slots] = parents
    trees.rank_BN[b, slots] = last_ranks
    trees.logw_BN[b, slots] = logws
    trees.node_count_B[b] = 1 + len(nodes)
