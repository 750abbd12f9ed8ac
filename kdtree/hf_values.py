"""Read checked values out of parsed JSON; every error names the key, what came and what is needed."""

from collections.abc import Mapping
from sys import float_info
from typing import Any, TypeAlias

__all__ = ["Json", "ModelError", "expect", "number", "one", "only", "switch", "table", "whole"]

Json: TypeAlias = Mapping[str, Any]
MAX = float_info.max


class ModelError(ValueError):
    """A checkpoint that this project cannot run: its config, a tensor or a file is wrong, missing or unsupported."""


def table(key: str, value: object) -> Json:
    """Return a JSON object."""
    if not isinstance(value, Mapping):
        raise ModelError(f"{key}: got {value!r}, needs an object")
    return value


def whole(values: Json, key: str, *, default: int | None = None, least: int = 0) -> int:
    """Return an integer; a null is the same as no key."""
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ModelError(f"{key}: got {value!r}, needs an integer, {least} or more")
    return value


def number(values: Json, key: str, *, default: float | None = None, least: float = 0, above: float = -1) -> float:
    """Return a finite number that is at least `least` and more than `above`."""
    value = values.get(key)
    value = default if value is None else value
    if isinstance(value, int | float) and not isinstance(value, bool) and above < value <= MAX and value >= least:
        return float(value)
    bound = f"more than {above}" if above >= least else f"{least} or more"
    raise ModelError(f"{key}: got {value!r}, needs a number, {bound}")


def switch(values: Json, key: str, default: bool) -> bool:
    """Return a bool."""
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise ModelError(f"{key}: got {value!r}, needs true or false")
    return value


def one(key: str, *values: Any) -> Any:
    """Return the value on which all that are not None agree, or None."""
    given = [value for value in values if value is not None]
    for value in given:
        if value != given[0]:
            raise ModelError(f"{key}: got {given[0]!r} and {value!r}, needs the same where it is given twice")
    return given[0] if given else None


def only(key: str, value: object, *supported: object) -> None:
    """Raise ModelError for a value that is neither None nor supported."""
    if value is not None and value not in supported:
        raise ModelError(f"{key}: got {value!r}, needs {' or '.join(map(repr, supported))}")


def expect(where: str, values: Json, **needed: object) -> None:
    """Raise ModelError unless each key has the value needed."""
    for key, value in needed.items():
        if values.get(key) != value:
            raise ModelError(f"{where}.{key}: got {values.get(key)!r}, needs {value!r}")
