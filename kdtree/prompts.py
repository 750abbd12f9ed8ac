"""Prompts from a file: JSON Lines, one prompt a line, as text or as tokens."""

import json
from pathlib import Path
from typing import Any

__all__ = ["read_prompts"]

NEEDS = '{"text": "..."} or {"tokens": [...]}'


def read_prompts(path: Path, byte_start: list[int] | None, vocab_size: int, most: int) -> list[list[int]]:
    """Return the tokens of each prompt; lines that are empty are none.

    Parameters
    ----------
    path : Path
        Each line is {"text": "..."}, for byte-level models, or {"tokens": [...]}, taken as they are.
    byte_start : list of int or None
        Tokens in front of the UTF-8 bytes of a text; None refuses texts. See `hf_config.byte_start`.
    vocab_size : int
    most : int
        Tokens that a prompt may have.

    Raises
    ------
    ValueError
        A line is no prompt, or its prompt is empty, too long or of tokens that the model lacks; the message names it.
    OSError
        The file cannot be read.
    """
    prompts = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: got bytes that are not UTF-8 ({error}), needs JSON Lines") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                prompts.append(tokens_of(line, byte_start, vocab_size, most))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    if not prompts:
        raise ValueError(f"{path}: got no prompts, needs one a line: {NEEDS}")
    return prompts


def tokens_of(line: str, byte_start: list[int] | None, vocab_size: int, most: int) -> list[int]:
    """Return the tokens of one line, or raise ValueError."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"got no JSON ({error}), needs {NEEDS}") from None
    if not isinstance(given, dict) or list(given) not in (["text"], ["tokens"]):
        raise ValueError(f"got {line.strip()[:40]!r}, needs {NEEDS}")
    tokens = encoded(given["text"], byte_start) if "text" in given else checked(given["tokens"], vocab_size)
    if not 1 <= len(tokens) <= most:
        raise ValueError(
            f"got a prompt of {len(tokens)} tokens, needs 1 to {most}: the model's positions less --anchors"
        )
    return tokens


def encoded(text: Any, byte_start: list[int] | None) -> list[int]:
    """Return the bytes of a text as tokens, behind those that begin every text."""
    if byte_start is None:
        raise ValueError('got a text, needs "tokens": the model\'s config.json does not say "tokenizer": "bytes"')
    if not isinstance(text, str):
        raise ValueError(f"text: got {text!r}, needs a string")
    try:
        return byte_start + list(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"text: got {text!r}, needs characters that UTF-8 has") from None


def checked(tokens: Any, vocab_size: int) -> list[int]:
    """Return tokens of the vocabulary as they came."""
    if not isinstance(tokens, list):
        raise ValueError(f"tokens: got {tokens!r}, needs a list of tokens")
    for token in tokens:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocab_size:
            raise ValueError(f"tokens: got {token!r}, needs 0 to {vocab_size - 1}")
    return tokens
