"""The best tokens of each row with their log-probs: what a tree builder takes."""

from typing import NamedTuple

import numpy as np

from .arrays import Float, Index, count, sizes

__all__ = ["TopK", "top_k"]


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
    token_TK = np.argsort(-logit_TV, axis=1, kind="stable")[:, :k]
    return TopK(np.take_along_axis(logprob_TV, token_TK, axis=1), token_TK.astype(np.int32))
