"""Tree builders: one function a file, all with the interface of `ops.tree_build`.

A builder takes root_token_B, top_logprob_BLK, top_token_BLK and a budget and returns a TreeBatch; settings of its own
are keywords with defaults. The file's name is the registration: `get("chain")` is `chain` of `chain.py`.
"""

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from numpy.typing import ArrayLike

from kdtree.reference.tree_batch import TreeBatch

__all__ = ["Builder", "get", "is_nested", "names", "nested"]


class Builder(Protocol):
    """What replay, plots and the command line take for a builder."""

    def __call__(
        self, root_token_B: ArrayLike, top_logprob_BLK: ArrayLike, top_token_BLK: ArrayLike, budget: int, /
    ) -> TreeBatch:
        """Build one tree a batch row; see `kdtree.reference.tree_build`."""


F = TypeVar("F", bound=Callable[..., TreeBatch])


def nested(builder: F) -> F:
    """Declare that a builder's tree of any budget is the first nodes of its tree of any larger one."""
    builder.nested = True  # type: ignore[attr-defined]
    return builder


def is_nested(builder: Builder) -> bool:
    """Tell whether a builder, or the function that a partial fixes settings of, was declared nested."""
    return getattr(builder.func if isinstance(builder, partial) else builder, "nested", False)


def names() -> list[str]:
    """Return the names of the builders."""
    return sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py"))


def get(name: str) -> Builder:
    """Return a builder by name, with settings if there are any: "ddtree", "accum_logp:width=8".

    Raises
    ------
    ValueError
        No builder has this name, or it has no such setting.
    """
    name, *settings = name.split(":")
    if name not in names():
        raise ValueError(f"builder: got {name!r}, needs one of {', '.join(names())}")
    builder: Builder = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    if not settings:
        return builder
    given = dict(setting.partition("=")[::2] for setting in settings)
    known = getattr(builder, "__kwdefaults__", None) or {}
    for key, value in given.items():
        if key not in known or not value.isdecimal():
            allowed = ", ".join(f"{key}=N" for key in known) or "no settings"
            raise ValueError(f"builder {name}: got {key}={value}, needs {allowed}")
    return partial(builder, **{key: int(value) for key, value in given.items()})
