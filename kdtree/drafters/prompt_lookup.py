"""A drafter without a model: what followed the last time."""

import numpy as np

from kdtree.reference.arrays import Float, Index, count

__all__ = ["PromptLookup"]


class PromptLookup:
    """Look the last tokens up in the text before them, and count what followed.

    The longest n-gram, n = max_ngram..1, that ends the known tokens and occurs before gives M matches. At depth d

        q_d(v) = (matches whose d-th token is v + 1 / V) / (matches with a d-th token + 1)

    so that without a match every token is equally likely.

    Parameters
    ----------
    draft_len : int
        L.
    vocab_size : int
        V.
    max_ngram : int

    Source
    ------
    Saxena, Prompt Lookup Decoding, 2023; the counts over all matches are ours.

    Invariants
    ----------
    - it counts what followed (test_prompt_lookup_counts_what_followed_the_longest_match)
    - rows are distributions (test_prompt_lookup_rows_are_distributions)

    Examples
    --------
    >>> row_LV = PromptLookup(draft_len=2, vocab_size=9).propose(np.array([1, 2, 5, 6, 1, 2]), np.zeros((0, 0, 0)))
    >>> row_LV.argmax(axis=1)
    array([5, 6])
    """

    def __init__(self, *, draft_len: int, vocab_size: int, max_ngram: int = 3) -> None:
        self.draft_len = count("draft_len", draft_len)
        self.vocab_size = count("vocab_size", vocab_size)
        self.max_ngram = count("max_ngram", max_ngram)

    def session(self) -> "PromptLookup":
        """Return the drafter itself: it remembers nothing."""
        return self

    def propose(self, token_T: Index, new_hidden_YTD: Float) -> Float:
        """Return the log-probs of what followed the matches."""
        V = self.vocab_size
        if token_T.max(initial=0) >= V:
            raise ValueError(f"vocab_size: got {V}, needs more than token {token_T.max()} of the text")
        follow_M = self.after_matches(token_T)
        row_LV = np.empty((self.draft_len, V), np.float32)
        for depth in range(self.draft_len):
            place_M = follow_M + depth
            seen = token_T[place_M[place_M < len(token_T)]]
            row_LV[depth] = np.log((np.bincount(seen, minlength=V) + 1 / V) / (len(seen) + 1))
        return row_LV

    def after_matches(self, token_T: Index) -> Index:
        """Return the places right after the earlier occurrences of the longest n-gram that ends the tokens."""
        for n in range(min(self.max_ngram, len(token_T) - 1), 0, -1):
            window_MN = np.lib.stride_tricks.sliding_window_view(token_T[:-1], n)
            start_M = np.flatnonzero((window_MN == token_T[-n:]).all(axis=1))
            if start_M.size:
                return (start_M + n).astype(np.int32)
        return np.zeros(0, np.int32)
