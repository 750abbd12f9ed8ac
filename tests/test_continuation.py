"""How a continuation is printed, round by round."""

import io
import re
from unicodedata import category

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from rich.console import Console

from kdtree.cli.continuation import COLOURS, Continuation

STYLE = re.compile(r"\x1b\[[\d;]*m")
byte_rounds = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=9), max_size=6)
text_rounds = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="│"), max_size=20).map(
    lambda text: [[byte] for byte in text.encode()]
)


def printed(rounds, *, in_bytes=True, prompt=(), colours=None, encoding="utf-8", legend=False):
    """Return what reaches a file or, with colours, a terminal."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    console = Console(file=file, force_terminal=bool(colours), color_system=colours, no_color=False, width=40)
    text = Continuation(in_bytes, console)
    if legend:
        text.legend()
    text.prompt(prompt)
    for tokens in rounds:
        text.round(tokens)
    text.close()
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def test_newlines_and_indentation_are_those_of_the_code():
    rounds = [b"return x", b"\n\n", b"    y = '\\n'\n", b"z"]
    assert printed(rounds, prompt=b"def f(x):\n    ") == (
        "def f(x):\n    │return x│\n│\n    y = '\\n'│\nz│\n"  # an empty line holds the end of a round
    )


def test_on_a_terminal_with_colours_rounds_take_turns_and_the_prompt_is_dim():
    shown = printed([b"ab", b"c", b"d"], prompt=b"p", colours="truecolor")
    blue, red = (tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in COLOURS)
    styled = [f"\x1b[38;2;{r};{g};{b}m{name}\x1b[0m" for name, (r, g, b) in (("ab", blue), ("c", red), ("d", blue))]
    assert shown == "\x1b[2mp\x1b[0m" + "".join(styled) + "\n"


@pytest.mark.parametrize("colours", ["standard", "256", "truecolor"])
def test_two_rounds_differ_in_colour_on_every_kind_of_terminal(colours):
    first, second = STYLE.findall(printed([b"a", b"b"], colours=colours))[::2]
    assert first != second


def test_the_legend_says_what_is_shown():
    assert printed([], legend=True).startswith("│ ends the prompt and every round: ")
    coloured = printed([], legend=True, colours="truecolor")
    assert STYLE.sub("", coloured).startswith("prompt, round 1, round 2 and so on: ")
    assert "│" not in coloured


@given(text_rounds | byte_rounds)
@example([[0xC3], [0xA9]])  # one character, two rounds
@example([[0xC3], [0xC3, 0xA9, 256, 0xE2]])
def test_rounds_change_no_letter_of_the_text(rounds):
    whole = printed([[token for tokens in rounds for token in tokens]]).replace("│", "")
    assume(not any(category(letter).startswith("M") for letter in whole))  # one that begins a round is an escape
    assert printed(rounds).replace("│", "") == whole
    assert STYLE.sub("", printed(rounds, colours="truecolor")) == whole


@given(st.text(st.characters(exclude_categories=("C", "M", "Z"), exclude_characters="│␣∅"), max_size=30))
def test_printable_text_is_printed_as_it_is(text):
    assert printed([[byte] for byte in text.encode()]).replace("│", "") == text + "\n"


@given(byte_rounds)
@example([list(b"\x1b[31m\r\x07\x9b\t"), [0xFF], [0xE2, 0x80, 0xAE]])
def test_no_control_character_reaches_the_output(rounds):
    assert printed(rounds).replace("\n", "").isprintable()
    assert STYLE.sub("", printed(rounds, colours="256")).replace("\n", "").isprintable()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@given(rounds=text_rounds | byte_rounds)
def test_an_output_of_few_characters_gets_escapes(encoding, rounds):
    assert printed(rounds, encoding=encoding).count("|") >= 1 + len(rounds)


def test_bytes_that_are_no_text_and_tokens_that_are_no_bytes_are_named():
    shown = printed([[256, 97], [0xFF, 0xC3], [98, 257], [0xE2, 0x82]])
    assert shown == "│<256>a│\\xff│\\xc3b<257>││\\xe2\\x82\n"


def test_other_tokens_are_numbers():
    assert printed([[5, 17], [300]], prompt=[1], in_bytes=False) == "1 │5 17 │300 │\n"


def test_a_long_line_is_left_to_the_terminal_to_wrap():
    assert printed([b"x " * 100], colours="256").count("\n") == 1
