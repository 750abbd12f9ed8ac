"""The router of a mixture of experts."""

from typing import NamedTuple

import numpy as np

from .arrays import Float, Index, sizes

__all__ = ["Routing", "route"]


class Routing(NamedTuple):
    """Which experts a row goes to, best first, and with what weight."""

    expert_TK: Index
    weight_TK: Float


def route(
    logit_TE: Float,
    bias_E: Float,
    top_k: int,
    n_group: int,
    topk_group: int,
    normalise: bool,
    scale: float,
    scoring: str,
) -> Routing:
    """Choose experts by biased scores, and weigh them by unbiased ones.

    "sigmoid" (DeepSeek-V3, noaux_tc): s = sigmoid(logit), choice = s + bias. The experts form `n_group` groups; only
    the `topk_group` groups whose two best choices sum highest stay, the others are refused (-inf, whatever the sign of
    the choices that stay). "softmax": s = softmax(logit) = choice, without bias, groups or scale.

    Parameters
    ----------
    logit_TE : float, shape (T, E)
    bias_E : float, shape (E,)
        Enters the choice alone, never the weights.
    top_k : int
        K, experts of a row.
    n_group, topk_group : int
        Groups, and how many of them stay.
    normalise : bool
        Divide the weights of a row by their sum.
    scale : float
        Multiplies the weights, normalised or not.
    scoring : {"sigmoid", "softmax"}

    Returns
    -------
    Routing
        Ties go to the lower index: of groups, and of experts.

    Raises
    ------
    ShapeError
        A shape does not fit the argument's name.
    ValueError
        A logit is NaN, there is no such scoring, the groups do not divide the experts, or top_k is more than stay.

    Source
    ------
    DeepSeek-V3 (arXiv 2412.19437) and transformers 5.24.

    Invariants
    ----------
    - the bias never enters the weights (test_the_bias_chooses_and_does_not_weigh)
    - a refused group stays refused below negative choices (test_a_refused_group_stays_refused_below_negative_choices)

    Examples
    --------
    >>> route(np.zeros((1, 2)), np.array([0.0, 10.0]), 2, 1, 1, True, 1.0, "sigmoid")
    Routing(expert_TK=array([[1, 0]], dtype=int32), weight_TK=array([[0.5, 0.5]]))
    """
    E = sizes(logit_TE=logit_TE, bias_E=bias_E)["E"]
    if scoring not in ("sigmoid", "softmax"):
        raise ValueError(f"scoring: got {scoring!r}, needs 'sigmoid' or 'softmax'")
    if scoring == "sigmoid" and not (1 <= topk_group <= n_group and E % n_group == 0):
        needs = f"a divisor of E = {E}, and 1 to n_group"
        raise ValueError(f"n_group, topk_group: got {n_group} and {topk_group}, needs {needs}")
    most = E if scoring == "softmax" else E // n_group * topk_group
    if not 0 <= top_k <= most:
        raise ValueError(f"top_k: got {top_k}, needs 0 to {most}")
    for t in np.flatnonzero(np.isnan(logit_TE).any(axis=1)):
        raise ValueError(f"logit_TE: got NaN at row {t}, needs numbers")
    score_TE: Float
    choice_TE: Float
    if scoring == "softmax":
        exp_TE = np.exp(logit_TE - logit_TE.max(axis=1, keepdims=True))
        score_TE = choice_TE = exp_TE / exp_TE.sum(axis=1, keepdims=True)
        scale = 1.0
    else:
        with np.errstate(over="ignore"):
            score_TE = 1 / (1 + np.exp(-logit_TE))
        choice_TE = keep_groups(score_TE + bias_E, n_group, topk_group)
    expert_TK = best_first(choice_TE)[:, :top_k]
    weight_TK = np.take_along_axis(score_TE, expert_TK, axis=1)
    if normalise:
        weight_TK = weight_TK / (weight_TK.sum(axis=1, keepdims=True) + weight_TK.dtype.type(1e-20))
    return Routing(expert_TK.astype(np.int32), weight_TK * weight_TK.dtype.type(scale))


def keep_groups(choice_TE: Float, n_group: int, topk_group: int) -> Float:
    """Set the choices of all but the best groups to -inf."""
    T, E = choice_TE.shape
    choice_TGJ = choice_TE.reshape(T, n_group, E // n_group)
    group_TG = np.sort(choice_TGJ, axis=2)[:, :, -2:].sum(axis=2)
    kept_TG = np.zeros((T, n_group), np.bool_)
    np.put_along_axis(kept_TG, best_first(group_TG)[:, :topk_group], True, axis=1)
    return np.where(kept_TG[:, :, None], choice_TGJ, -np.inf).reshape(T, E)


def best_first(value_TE: Float) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the columns of each row, largest value first, equal values by index."""
    return np.argsort(-value_TE, axis=1, kind="stable")
