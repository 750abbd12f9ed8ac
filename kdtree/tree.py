"""One draft tree as arrays."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import draw
from .reference.arrays import Index, count, integers, sizes
from .reference.errors import ShapeError, TreeError
from .reference.tree_batch import NO_NODE, ROOT, TreeBatch
from .reference.tree_checks import check_parents

__all__ = ["DraftTree"]


@dataclass(frozen=True, eq=False, repr=False)
class DraftTree:
    """A tree of candidate continuations: N slots, slot 0 the root, parents before children, no padding.

    Making one checks it (`validate`) and freezes its arrays; methods that change a tree return a new one.

    Examples
    --------
    >>> tree = DraftTree.from_parents([-1, 0, 0, 1], prob_N=[1, 0.6, 0.4, 0.9])
    >>> tree.path(3).tolist(), round(tree.expected_accept_len, 2)
    ([0, 1, 3], 2.54)
    """

    token_N: Index  #: token of each slot; the root's is the last committed token
    depth_N: Index  #: 0 at the root; the slot's position is prefix length + depth
    parent_N: Index  #: slot of the parent, -1 at the root
    rank_N: Index  #: rank of the token in its row of the marginals, -1 at the root
    logw_N: NDArray[np.float64]  #: log q(path to the slot), nats; 0 at the root; NaN if unknown

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            array = np.array(given, np.float64) if field.name == "logw_N" else integers(field.name, given).copy()
            array.flags.writeable = False
            object.__setattr__(self, field.name, array)
        self.validate()

    @classmethod
    def from_batch(cls, trees: TreeBatch, row: int = 0) -> "DraftTree":
        """Take one row of a builder's result, without its padding."""
        B = len(trees.node_count_B)
        if not 0 <= row < B:
            raise IndexError(f"row: got {row}, needs 0 to {B - 1}")
        n = int(trees.node_count_B[row])
        if not 1 <= n <= trees.token_BN.shape[1]:
            raise TreeError(f"node_count_B: got {n} at batch row {row}, needs 1 to N = {trees.token_BN.shape[1]}")
        return cls(
            trees.token_BN[row, :n],
            trees.depth_BN[row, :n],
            trees.parent_BN[row, :n],
            trees.rank_BN[row, :n],
            trees.logw_BN[row, :n],
        )

    @classmethod
    def from_parents(
        cls, parent_N: ArrayLike, token_N: ArrayLike | None = None, prob_N: ArrayLike | None = None
    ) -> "DraftTree":
        """Make a tree from parents alone.

        Parameters
        ----------
        parent_N : int, shape (N,)
            Slot of each slot's parent, before it; -1 at slot 0.
        token_N : int, shape (N,), optional
            Token of each slot; its slot number if not given.
        prob_N : float, shape (N,), optional
            Probability of each slot's token given its parent's path; the root's is not read. If not given, weights are
            unknown (NaN).

        Raises
        ------
        ShapeError, TreeError
            As `validate`; ValueError if a probability is not from 0 to 1.
        """
        parents = integers("parent_N", parent_N)
        sizes(parent_N=parents)
        N = len(parents)
        check_parents(parents[None], np.array([N], np.int32))
        prob = np.full(N, np.nan) if prob_N is None else np.array(prob_N, np.float64)
        sizes(parent_N=parents, prob_N=prob)
        if prob_N is not None and not ((prob >= 0) & (prob <= 1)).all():
            raise ValueError(f"prob_N: got {prob}, needs probabilities from 0 to 1")
        with np.errstate(divide="ignore"):
            logw = np.log(prob)
        logw[ROOT] = 0.0
        depth, rank, children = np.zeros(N, np.int32), np.full(N, NO_NODE, np.int32), np.zeros(N, np.int32)
        for i in range(1, N):
            parent = parents[i]
            depth[i] = depth[parent] + 1
            rank[i] = children[parent]
            children[parent] += 1
            logw[i] += logw[parent]
        token = np.arange(N) if token_N is None else token_N
        return cls(integers("token_N", token), depth, parents, rank, logw)

    def validate(self) -> None:
        """Raise unless the arrays describe one tree.

        Raises
        ------
        ShapeError
            The arrays differ in length or are not one-dimensional.
        TreeError
            A parent does not precede its child, a depth is not its parent's plus 1, siblings share a rank, a token is
            negative, or a weight is +inf.
        """
        N = sizes(**{field.name: getattr(self, field.name) for field in fields(self)})["N"]
        if N == 0:
            raise ShapeError("token_N: got 0 slots, needs 1 or more: the root is always there")
        check_parents(self.parent_N[None], np.array([N], np.int32))
        below = slice(1, None)
        expected = np.zeros(N, np.int32)
        expected[below] = self.depth_N[self.parent_N[below]] + 1
        for i in np.flatnonzero(self.depth_N != expected):
            raise TreeError(f"depth_N: got {self.depth_N[i]} at slot {i}, needs {expected[i]}")
        if self.rank_N[ROOT] != NO_NODE or self.logw_N[ROOT] != 0:
            got = f"rank {self.rank_N[ROOT]}, logw {self.logw_N[ROOT]}"
            raise TreeError(f"rank_N, logw_N: got {got} at the root, needs rank -1 and logw 0")
        for i in np.flatnonzero(self.rank_N[below] < 0) + 1:
            raise TreeError(f"rank_N: got {self.rank_N[i]} at slot {i}, needs 0 or more")
        seen: dict[tuple[int, int], int] = {}
        for slot, child in enumerate(zip(self.parent_N.tolist(), self.rank_N.tolist(), strict=True)):
            if (first := seen.setdefault(child, slot)) != slot:
                raise TreeError(
                    f"rank_N: got {child[1]} at slots {first} and {slot}, children of {child[0]}; needs one of each"
                )
        for i in np.flatnonzero(self.token_N < 0):
            raise TreeError(f"token_N: got {self.token_N[i]} at slot {i}, needs 0 or more")
        for i in np.flatnonzero(self.logw_N == np.inf):
            raise TreeError(f"logw_N: got inf at slot {i}, needs less")

    @property
    def node_count(self) -> int:
        """Slots, the root included."""
        return len(self.token_N)

    @property
    def budget(self) -> int:
        """Nodes below the root."""
        return self.node_count - 1

    @property
    def expected_accept_len(self) -> float:
        """Tokens that a round commits on average if the drafter's marginals are right: the sum of q over all slots.

        The root's share, 1, stands for the bonus token. NaN if a weight is unknown.
        """
        with np.errstate(over="ignore"):
            return float(np.exp(self.logw_N).sum())

    def path(self, slot: int) -> Index:
        """Return the slots from the root down to `slot`, both included; IndexError if there is no such slot."""
        if not 0 <= slot < self.node_count:
            raise IndexError(f"slot: got {slot}, needs 0 to {self.node_count - 1}")
        path = [slot]
        while path[-1] != ROOT:
            path.append(int(self.parent_N[path[-1]]))
        return np.array(path[::-1], np.int32)

    def truncate(self, budget: int) -> "DraftTree":
        """Keep the first `budget` nodes below the root.

        Parents precede children, so this is a tree; of a best-first tree it is the tree of that budget.
        """
        budget = count("budget", budget)
        return DraftTree(*(getattr(self, field.name)[: budget + 1] for field in fields(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DraftTree):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name), equal_nan=field.name == "logw_N")
            for field in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<DraftTree of {self.budget} nodes, depth {self.depth_N.max()}>"

    def __str__(self) -> str:
        return self.text()

    def text(self, label: Callable[[int], str] = str, path: ArrayLike = ()) -> str:
        """Draw the tree with lines of text; see `kdtree.draw.text`."""
        return draw.text(self, label, path)

    def svg(self, label: Callable[[int], str] = str, path: ArrayLike = ()) -> str:
        """Draw the tree as an SVG document; see `kdtree.draw.svg`."""
        return draw.svg(self, label, path)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return draw.html(self)
