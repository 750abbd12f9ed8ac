"""The look that all drawings share: colours, widths and how a probability is written."""

__all__ = ["ACCEPTED", "FAINT", "INK", "PAPER", "PLAIN", "edge_width", "number", "percent", "shade"]

PAPER, INK, FAINT = "#ffffff", "#1b1f24", "#59636e"
PLAIN, ACCEPTED = "#0072b2", "#d55e00"  # blue and vermilion, told apart by colour-blind readers too (Okabe and Ito)


def edge_width(path_prob: float, accepted: bool) -> float:
    """Return the width of the edge to a slot, in points or pixels; 1 more on the accepted path."""
    return 0.6 + 3 * _share(path_prob) + accepted


def shade(path_prob: float) -> float:
    """Return the opacity of a slot's box, over paper."""
    return 0.04 + 0.24 * _share(path_prob)


def number(prob: float) -> str:
    """Write a probability with about three digits: ? if it is unknown, 0 only if it is 0.

    Examples
    --------
    >>> [number(p) for p in (1.0, 0.62, 4.2e-5, 0.0, float("nan"))]
    ['1.000', '0.620', '4e-05', '0', '?']
    """
    if prob != prob:
        return "?"
    if prob == 0:
        return "0"
    return f"{prob:.3f}" if 0.001 <= prob < 1000 else f"{prob:.0e}"


def percent(prob: float) -> str:
    """Write a probability in at most four characters, nothing if it is unknown.

    Examples
    --------
    >>> [percent(p) for p in (1.0, 0.62, 0.004, 0.0, float("nan"))]
    ['100%', '62%', '<1%', '0%', '']
    """
    if prob != prob:
        return ""
    if prob > 1:
        return ">1" if prob > 1.005 else "100%"
    return "<1%" if 0 < prob < 0.005 else f"{prob:.0%}"


def _share(prob: float) -> float:
    return min(prob, 1.0) if prob > 0 else 0.0  # an unknown probability counts as 0
