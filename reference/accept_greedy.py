"""The greedy walk: follow the target's own choices down the tree."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Index, integers, sizes
from .tree_batch import NO_NODE, ROOT
from .tree_checks import check_links

__all__ = ["Acceptance", "Walk", "accept_greedy", "as_walk"]


class Acceptance(NamedTuple):
    """What a round commits: the tokens below the root on the path, then the bonus token."""

    path_BN: Index  #: accepted slots from the root down, padded with NO_NODE
    accept_len_B: Index  #: slots on the path, the root included = tokens that the round commits, the bonus included
    bonus_B: Index  #: the target's token at the last accepted slot


class Walk(NamedTuple):
    """The checked arguments of accept_greedy."""

    token_BN: Index
    first_child_BN: Index
    next_sibling_BN: Index
    node_count_B: Index
    target_token_BN: Index


def accept_greedy(
    token_BN: ArrayLike,
    first_child_BN: ArrayLike,
    next_sibling_BN: ArrayLike,
    node_count_B: ArrayLike,
    target_token_BN: ArrayLike,
) -> Acceptance:
    """Walk from the root to the first child that carries the target's token, until there is none.

    Parameters
    ----------
    token_BN : int, shape (B, N)
        Token of each slot.
    first_child_BN, next_sibling_BN : int, shape (B, N)
        Links of `retrieve`. Padded slots are not read.
    node_count_B : int, shape (B,)
        Real slots of each tree, 1..N.
    target_token_BN : int, shape (B, N)
        The token that the target puts after each slot: argmax of its logits, the lowest index on ties, or one draw.

    Returns
    -------
    Acceptance
        accept_len = len(path) counts the root, whose place the bonus token takes in what is committed.

    Raises
    ------
    ShapeError
        A shape or dtype does not fit the argument's name.
    TreeError
        A node count or a link is out of range, a link leads back, a slot has two parents or none.

    Cost
    ----
    O(B N) time and memory.

    Invariants
    ----------
    - no path in the tree matches the target for longer (test_the_walk_finds_the_longest_match)
    - of equal tokens among siblings the first in slot order is taken (test_the_link_walk_and_the_child_map_walk_agree)
    - malformed links end in TreeError (test_malformed_links_end_in_tree_error)

    Examples
    --------
    >>> walk = accept_greedy([[7, 10, 11, 20]], [[1, 3, -1, -1]], [[-1, 2, -1, -1]], [4], [[10, 20, 0, 5]])
    >>> walk.path_BN.tolist(), walk.accept_len_B.tolist(), walk.bonus_B.tolist()
    ([[0, 1, 3, -1]], [3], [5])
    """
    walk = as_walk(token_BN, first_child_BN, next_sibling_BN, node_count_B, target_token_BN)
    B, N = walk.token_BN.shape
    path_BN = np.full((B, N), NO_NODE, np.int32)
    accept_len_B = np.zeros(B, np.int32)
    bonus_B = np.zeros(B, np.int32)
    for b, (token_N, first_child_N, next_sibling_N, _, target_token_N) in enumerate(zip(*walk, strict=True)):
        path = [ROOT]
        while True:
            slot = matching_child(path[-1], token_N, first_child_N, next_sibling_N, target_token_N[path[-1]])
            if slot == NO_NODE:
                break
            path.append(slot)
        path_BN[b, : len(path)] = path
        accept_len_B[b] = len(path)
        bonus_B[b] = target_token_N[path[-1]]
    return Acceptance(path_BN, accept_len_B, bonus_B)


def as_walk(
    token_BN: ArrayLike,
    first_child_BN: ArrayLike,
    next_sibling_BN: ArrayLike,
    node_count_B: ArrayLike,
    target_token_BN: ArrayLike,
) -> Walk:
    """Convert and check the arguments of accept_greedy."""
    walk = Walk(
        integers("token_BN", token_BN),
        integers("first_child_BN", first_child_BN),
        integers("next_sibling_BN", next_sibling_BN),
        integers("node_count_B", node_count_B),
        integers("target_token_BN", target_token_BN),
    )
    sizes(**walk._asdict())
    check_links(walk.first_child_BN, walk.next_sibling_BN, walk.node_count_B)
    return walk


def matching_child(parent: int, token_N: Index, first_child_N: Index, next_sibling_N: Index, wanted: int) -> int:
    """Return the first child of `parent` that carries the wanted token, or NO_NODE."""
    slot = int(first_child_N[parent])
    while slot != NO_NODE and token_N[slot] != wanted:
        slot = int(next_sibling_N[slot])
    return slot
