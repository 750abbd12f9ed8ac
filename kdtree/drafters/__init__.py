"""Drafters: what proposes the next L tokens, behind one small protocol."""

from typing import Protocol

from kdtree.reference.arrays import Float, Index

__all__ = ["DraftSession", "Drafter"]


class DraftSession(Protocol):
    """A drafter at work on one sequence."""

    def propose(self, token_T: Index, new_hidden_YTD: Float) -> Float:
        """Return log-probs (L, V), nats, for the L tokens after `token_T`; -inf is no candidate.

        Parameters
        ----------
        token_T : int32, shape (T,)
            All known tokens, the prompt included. The last one is the root of the next tree.
        new_hidden_YTD : float, shape (Y + 1, t, D)
            The target's hidden streams (`Forward.hidden_YBND`) of the t tokens that were committed to its cache since
            the last call; the last known token has none yet.
        """


class Drafter(Protocol):
    """A drafter that can work on any number of sequences."""

    draft_len: int  #: L

    def session(self) -> DraftSession:
        """Return a fresh session, for one sequence."""
