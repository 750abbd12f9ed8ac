"""Hold a kernel to its properties with hypothesis, and find the smallest arguments where one does not hold."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from numpy.typing import NDArray

from kdtree.reference.arrays import count

from .kernel import Array, Kernel
from .model_strategies import ROUNDED
from .properties import PROPERTIES, Property, properties_of
from .strategies import EXACT, Arguments

__all__ = ["ARGUMENTS", "Outcome", "check", "outcomes"]

ARGUMENTS = {**EXACT, **ROUNDED}  #: by op: the strategy of its arguments


@dataclass(frozen=True)
class Outcome:
    """What came of one property.

    Parameters
    ----------
    property : str
        Its name in `kdtree.testing.properties`.
    examples : int
        How many arguments it held for.
    failure : str or None
        What is wrong, and the smallest arguments found where it is; `None` if nothing is.
    """

    property: str
    examples: int
    failure: str | None


def check(
    op: str,
    function: Callable[..., Any],
    arrays: Callable[[NDArray[Any]], Array] | None = None,
    *,
    without: Sequence[str] = (),
    examples: int = 100,
    seed: int = 0,
) -> None:
    """Hold a function of yours to the truth of an op: in a test, in a notebook, on a GPU.

    Parameters
    ----------
    op, function, arrays
        See `Kernel`.
    without : sequence of str
        Properties that the function need not have: truth, repeats, written, inputs or layouts.
    examples : int
        Arguments a property.
    seed : int
        The same seed draws the same arguments.

    Raises
    ------
    AssertionError
        A property does not hold; the message has the smallest arguments found, to paste.
    ValueError
        There is no such op or property.

    Examples
    --------
    >>> from kdtree import ops
    >>> check("retrieve", ops.retrieve, examples=5)
    """
    names = [property_.__name__ for property_ in PROPERTIES]
    for name in without:
        if name not in names:
            raise ValueError(f"without: got {name!r}, needs some of {', '.join(names)}")
    for outcome in outcomes(Kernel(op, function, arrays), without, examples, seed):
        if outcome.failure:
            raise AssertionError(outcome.failure)


def outcomes(kernel: Kernel, without: Sequence[str] = (), examples: int = 100, seed: int = 0) -> Iterator[Outcome]:
    """Yield what comes of each property; the first that does not hold is the last."""
    if count("examples", examples) == 0:
        raise ValueError("examples: got 0, needs 1 or more")
    count("seed", seed)
    for property_ in properties_of(kernel):
        if property_.__name__ not in without:
            outcome = outcome_of(kernel, property_, examples, seed)
            yield outcome
            if outcome.failure:
                return


def outcome_of(kernel: Kernel, property_: Property, examples: int, seed: int) -> Outcome:
    """Try a property on drawn arguments; where it fails, on smaller and smaller ones."""
    tried, failed = 0, None

    @seeded(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        nonlocal tried, failed
        arguments = data.draw(ARGUMENTS[kernel.op])
        drawn = deepcopy(arguments)  # the kernel might change them
        try:
            property_(kernel, arguments, data)
            tried += 1
        except Exception as error:
            failed = describe(kernel, property_, drawn, error)
            raise

    try:
        attempt()
    except Exception:
        if failed is None:  # drawing failed, not the kernel
            raise
    return Outcome(property_.__name__, tried, failed)


def describe(kernel: Kernel, property_: Property, arguments: Arguments, error: Exception) -> str:
    """Say which property failed, how, and for which arguments, in Python."""
    sentence = (property_.__doc__ or "").split("\n")[0]
    what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    with np.printoptions(threshold=2000, linewidth=110):
        lines = [f"    {name} = {value!r}" for name, value in zip(kernel.names, arguments, strict=False)]
    return "\n".join(
        [f"{kernel.op}, {property_.__name__}: {sentence}", f"  {what}", "  The smallest arguments found:", *lines]
    )
