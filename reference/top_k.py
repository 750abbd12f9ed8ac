"""The best tokens of each row with their log-probs: what a tree builder takes."""

from typing import NamedTuple

import numpy as np

from .arrays import Float, Index, count, sizes

__all__ = ["TopK", "best_tokens", "top_k"]


class TopK(NamedTuple):
    """The best tokens of each row, best first."""

    logprob_TK: Float  #: log-softmax over the whole vocabulary, nats
    token_TK: Index


def top_k(logit_TV: Float, k: int) -> TopK:
    """Return the min(k, V) most probable tokens of each row; equal ones by the lower token.

    Parameters
    ----------
    logit_TV : float, shape (T, V)
        -inf is probability 0; a row needs one finite logit.
    k : int

    Returns
    -------
    TopK

    Raises
    ------
    ValueError
        A logit is NaN or +inf, a row has no finite one, or k is negative.

    Examples
    --------
    >>> top_k(np.array([[1.0, 2.0, 5.0, 4.0, 5.0]]), 2).token_TK
    array([[2, 4]], dtype=int32)
    """
    sizes(logit_TV=logit_TV)
    k = count("k", k)
    peak_T1 = logit_TV.max(axis=1, keepdims=True, initial=-np.inf)
    for t in np.flatnonzero(~np.isfinite(peak_T1[:, 0])):
        raise ValueError(f"logit_TV: got {peak_T1[t, 0]} as the largest of row {t}, needs a finite number")
    logprob_TV = logit_TV - (peak_T1 + np.log(np.exp(logit_TV - peak_T1).sum(axis=1, keepdims=True)))
    token_TK, _ = best_tokens(logit_TV, k)
    return TopK(np.take_along_axis(logprob_TV, token_TK, axis=1), token_TK)


def best_tokens(logprob_TV: Float, k: int) -> tuple[Index, Float]:
    """Return the min(k, V) best tokens of each row and their values, best first, equal ones by the lower token.

    Cost
    ----
    O(T V + T k log k): whole rows are not sorted. The values that tie with the last taken are.

    Examples
    --------
    >>> best_tokens(np.array([[-2.0, -1.0, -3.0, -1.0]]), 3)
    (array([[1, 3, 0]], dtype=int32), array([[-1., -1., -2.]]))
    """
    T, V = logprob_TV.shape
    k = min(k, V)
    token_TK = np.empty((T, k), np.int32)
    least_T = np.partition(logprob_TV, V - k, axis=1)[:, V - k] if k else np.full(T, np.inf)
    for token_K, logprob_V, least in zip(token_TK, logprob_TV, least_T, strict=True):
        candidates = np.flatnonzero(logprob_V >= least)
        token_K[:] = candidates[np.argsort(-logprob_V[candidates], kind="stable")[:k]]
    return token_TK, np.take_along_axis(logprob_TV, token_TK, axis=1)
