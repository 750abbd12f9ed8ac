"""Show any string on one line, so that different strings look different."""

import re
import unicodedata
from collections.abc import Callable

__all__ = ["EMPTY", "SPACE", "cells", "clip", "readable", "visible"]

SPACE = "␣"
EMPTY = "∅"


def visible(label: str, can_show: Callable[[str], bool] = lambda character: True) -> str:
    r"""Return `label` with everything that a drawing could lose replaced by a sign or an escape.

    A space becomes ␣ and the empty string ∅. A backslash, the two signs themselves, what `str.isprintable` refuses
    (control and format characters, lone surrogates, exotic spaces), a combining mark without a base character before
    it and what `can_show` refuses become escapes, as in a Python literal.

    Examples
    --------
    >>> print(visible(" the"), visible("a\tb"), visible(""), visible("é"), visible("\N{COMBINING ACUTE ACCENT}"))
    ␣the a\tb ∅ é \u0301
    """
    shown: list[str] = []
    has_base = False
    for character in label:
        sign = SPACE if character == " " else character
        is_mark = unicodedata.category(character).startswith("M")
        plain = character not in f"\\{SPACE}{EMPTY}" and sign.isprintable() and can_show(sign)
        has_base = plain and (has_base or not is_mark)
        shown.append(sign if has_base else _escape(character))
    return "".join(shown) or EMPTY


def readable(text: str, can_show: Callable[[str], bool] = lambda character: True) -> str:
    r"""Return `text` safe to print and yet easy to read: `visible`, but spaces, newlines and backslashes stay.

    Examples
    --------
    >>> print(readable("if x:\n    y = '\\0'\x1b\r"))
    if x:
        y = '\0'\x1b\r
    """
    return re.sub(r"[^ \n\\]+", lambda part: visible(part[0], can_show), text)


def _escape(character: str) -> str:
    if character == " ":
        return "\\x20"
    code = character.encode("unicode_escape").decode("ascii")
    return code if code != character else f"\\x{ord(character):02x}"


def cells(text: str) -> int:
    """Return the width of `text` in columns of a monospaced font: 2 for wide characters, 0 for combining marks.

    Examples
    --------
    >>> cells("token"), cells("語"), cells("e\N{COMBINING ACUTE ACCENT}")
    (5, 2, 1)
    """
    return sum(_cells(character) for character in text)


def clip(text: str, width: int) -> str:
    """Cut `text` to at most `width` columns, the last of them an ellipsis where something was cut.

    Examples
    --------
    >>> clip("tokenization", 6), clip("token", 6)
    ('token…', 'token')
    """
    if cells(text) <= width:
        return text
    room, kept = width - 1, 0
    for character in text:
        room -= _cells(character)
        if room < 0:
            break
        kept += 1
    return text[:kept] + "…"


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
