"""A continuation as it is written: every round in the colour of its turn, or up to a sign where there is no colour."""

import sys
from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kdtree.draw.labels import readable
from kdtree.draw.look import ACCEPTED, PLAIN

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Continuation"]

COLOURS = PLAIN, ACCEPTED
BYTES = 256
END = "│"


class Continuation:
    """Print a prompt and then rounds, each at once.

    Parameters
    ----------
    in_bytes : bool
        Tokens below 256 are the bytes of UTF-8 text, printed as text: newlines and spaces as they are, what is no
        UTF-8, no printable character or unknown to the encoding of the output as an escape. Other tokens are numbers.
    console : Console, optional
        Where to print; stdout if not given. Colours are used if it has them: on a terminal, without NO_COLOR.

    Invariants
    ----------
    - without its signs, the text does not depend on rounds, but that a combining mark that begins one is an escape
      (test_rounds_change_no_letter_of_the_text)
    - nothing reaches the terminal that could steer it (test_no_control_character_reaches_the_output)
    """

    def __init__(self, in_bytes: bool, console: "Console | None" = None) -> None:
        from rich.console import Console

        self._console = console or Console(file=sys.stdout)
        self._in_bytes = in_bytes
        self._coloured = bool(self._console.color_system) and not self._console.no_color
        self._decoder = getincrementaldecoder("utf-8")("backslashreplace")
        self._end = END if self._can_show(END) else "|"
        self._rounds = 0

    def legend(self) -> None:
        """Say what the looks mean."""
        if self._coloured:
            self._print("prompt", "dim")
            for number, colour in enumerate(COLOURS, start=1):
                self._print(", ")
                self._print(f"round {number}", colour)
            self._print(" and so on")
        else:
            self._print(f"{self._end} ends the prompt and every round")
        self._print(": a round is what one pass of the target gave\n\n")

    def prompt(self, tokens: Sequence[int]) -> None:
        """Print what is continued."""
        self._ended(self._text(tokens), "dim")

    def round(self, tokens: Sequence[int]) -> None:
        """Print what a round committed."""
        self._ended(self._text(tokens), COLOURS[self._rounds % len(COLOURS)])
        self._rounds += 1

    def close(self) -> None:
        """End the last line."""
        self._print(readable(self._decoder.decode(b"", final=True)) + "\n")

    def _text(self, tokens: Sequence[int]) -> str:
        if not self._in_bytes:
            return "".join(f"{token} " for token in tokens)
        text = ""
        for token in tokens:
            if token < BYTES:
                text += self._decoder.decode(bytes([token]))
            else:
                text += self._decoder.decode(b"", final=True) + f"<{token}>"
        return readable(text, self._can_show)

    def _can_show(self, character: str) -> bool:
        try:
            character.encode(self._console.encoding)
        except UnicodeEncodeError:
            return False
        return True

    def _ended(self, text: str, style: str) -> None:
        """Print a part; the sign stands before a newline that ends it, for behind it it would push the next line."""
        if not self._coloured:
            line, newline = (text[:-1], "\n") if text.endswith("\n") else (text, "")
            text = line + self._end + newline
        self._print(text, style)

    def _print(self, text: str, style: str | None = None) -> None:
        if text:
            self._console.out(text, style=style if self._coloured else None, highlight=False, end="")
