"""`kdtree demo`: plain decoding, a chain and DDTree side by side, and what they wrote, round by round."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer

from kdtree.decode import speculative
from kdtree.decode_result import Decoding
from kdtree.drafter_loading import load_drafter
from kdtree.drafters import Drafter
from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.drafters.oracle import Oracle
from kdtree.hf_config import byte_start
from kdtree.hf_tensors import parsed
from kdtree.loading import load_model
from kdtree.reference.arrays import count
from kdtree.shipped import DRAFTER, TARGET, tiny_prompts
from kdtree.target import Target

from .continuation import Continuation
from .options import integer, progress_bar, sampler_of

__all__ = ["demo"]

PROMPT = 35  # of the shipped ones: the beginning of a file
PROMPT_LEN = 16  # of random tokens
DRAFT_LEN, ERROR_RATE = 7, 0.2  # of the oracle
MOST = 4096  # nodes

OnRound: TypeAlias = Callable[[int, tuple[int, ...]], None]


def demo(
    model: Annotated[
        Path | None,
        typer.Argument(help="A Hugging Face folder of a DeepSeek-V3 or Kimi-K2 model; the shipped one if left out."),
    ] = None,
    drafter: Annotated[
        Path | None,
        typer.Option(
            help="A block-diffusion drafter's folder. If left out: the shipped one for the shipped model, "
            "an oracle that errs for another."
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Text to continue, for a byte-level model; one of the shipped if left out.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="The prompt as a comma list of token ids; random ones where text will not do.")
    ] = None,
    budget: Annotated[int, typer.Option(parser=integer, metavar="N", help="Nodes below the root.")] = 64,
    max_new_tokens: Annotated[int, typer.Option(parser=integer, metavar="N", help="Tokens to write.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy; above it, seeded sampling.")] = 0.5,
    seed: Annotated[
        int, typer.Option(parser=integer, metavar="N", help="Of sampling, a random prompt and the oracle.")
    ] = 0,
) -> None:
    """Continue a prompt plainly, with chains and with trees; show the rounds and compare passes and time."""
    if count("--budget", budget) > MOST:
        raise ValueError(f"--budget: got {budget}, needs at most {MOST}: a pass holds a mask of budget x budget")
    sampler = sampler_of(temperature, seed)
    count("--max-new-tokens", max_new_tokens)
    start = parsed((model or TARGET) / "config.json", byte_start)
    weights = load_model(model or TARGET)
    folder = drafter or (DRAFTER if model is None else None)
    learned = BlockDiffusion(load_drafter(folder), weights, exact=True) if folder else None
    target = Target(weights, backend="numba")
    known = read_prompt(prompt, tokens, start, target, seed)
    typer.echo(f"model    {model or 'the shipped tiny-target: it writes Python, byte by byte'}")
    warm_up(target, learned, known)

    def decode(drafter: Drafter | None, budget: int, builder: str, on_round: OnRound) -> Decoding:
        return speculative(
            target, drafter, [known], budget=budget, max_new_tokens=max_new_tokens, sampler=sampler, builder=builder,
            on_round=on_round,
        )  # fmt: skip

    room = min(max_new_tokens, target.config.max_position_embeddings - len(known))
    plain = with_progress("plain", room, partial(decode, None, 0, "chain"))
    chosen: Drafter = learned or oracle(known, plain, target.config.vocab_size, seed)
    typer.echo(f"drafter  {describe(drafter, chosen)}, L = {chosen.draft_len}\n")
    chain = with_progress("chain", room, partial(decode, chosen, budget, "chain"))
    fast = show(known, start, partial(decode, chosen, budget, "ddtree"))
    columns = {
        "plain": plain,
        f"chain of {min(budget, chosen.draft_len)}": chain,
        f"ddtree, budget {budget}": fast,
    }
    print_comparison(columns)
    if not identical(columns):
        raise typer.Exit(1)


def read_prompt(text: str | None, ids: str | None, start: list[int] | None, target: Target, seed: int) -> list[int]:
    """Return the tokens of the prompt that was given, or of one that fits the model."""
    name, vocab_size, most = "--prompt", target.config.vocab_size, target.config.max_position_embeddings - 1
    if text is not None and ids is not None:
        raise ValueError("--prompt, --tokens: got both, needs one of them")
    if ids is not None:
        name, tokens = "--tokens", parse_ids(ids, vocab_size)
    elif text is not None:
        if start is None:
            raise ValueError('--prompt: got text, needs --tokens: config.json does not say "tokenizer": "bytes"')
        tokens = start + list(text.encode("utf-8", "surrogateescape"))  # the very bytes of the command line
    elif start is not None:
        tokens = start + tiny_prompts()[PROMPT][1:].tolist()
    else:
        tokens = np.random.default_rng(seed).integers(0, vocab_size, PROMPT_LEN).tolist()
    if not 1 <= len(tokens) <= most:
        raise ValueError(f"{name}: got {len(tokens)} tokens, needs 1 to {most}")
    return tokens


def parse_ids(text: str, vocab_size: int) -> list[int]:
    """Read a comma list of token ids."""
    ids = [part.strip() for part in text.split(",")]
    for token in ids:
        if not token.isdecimal() or len(token) > 10 or int(token) >= vocab_size:
            raise ValueError(f"--tokens: got {token[:40]!r}, needs token ids from 0 to {vocab_size - 1}")
    return [int(token) for token in ids]


def warm_up(target: Target, drafter: Drafter | None, known: list[int]) -> None:
    """Decode two tokens with each way, so that none is timed while it compiles."""
    nobody = Oracle([known], [[]], draft_len=1, vocab_size=target.config.vocab_size)
    speculative(target, drafter or nobody, [known], budget=1, max_new_tokens=2)


def oracle(known: list[int], plain: Decoding, vocab_size: int, seed: int) -> Oracle:
    """Return an oracle for one prompt."""
    written = plain.sequences[0].tokens
    return Oracle([known], [written], draft_len=DRAFT_LEN, vocab_size=vocab_size, error_rate=ERROR_RATE, seed=seed)


def describe(folder: Path | None, drafter: Drafter) -> str:
    """Say what drafts."""
    if isinstance(drafter, Oracle):
        return f"an oracle that knows the tokens and errs with probability {ERROR_RATE}"
    return str(folder or "the shipped tiny-drafter, block diffusion")


def with_progress(name: str, room: int, decode: Callable[[OnRound], Decoding]) -> Decoding:
    """Decode under a bar that counts tokens."""
    done = 0
    with progress_bar(name) as progress:

        def on_round(_sequence: int, tokens: tuple[int, ...]) -> None:
            nonlocal done
            done += len(tokens)
            progress(done, room)

        return decode(on_round)


def show(known: list[int], start: list[int] | None, decode: Callable[[OnRound], Decoding]) -> Decoding:
    """Decode and print each round as it comes."""
    text = Continuation(in_bytes=start is not None)
    text.legend()
    begins = len(start or []) if known[: len(start or [])] == start else 0  # what begins every text is no part of it
    text.prompt(known[begins:])
    try:
        return decode(lambda _, tokens: text.round(tokens))
    finally:
        text.close()


def identical(columns: dict[str, Decoding]) -> bool:
    """Tell whether all wrote the same tokens."""
    return len({decoding.sequences[0].tokens for decoding in columns.values()}) == 1


def print_comparison(columns: dict[str, Decoding]) -> None:
    """Print a column a way of decoding, the rounds of the last one, and whether all wrote the same tokens."""
    rows: dict[str, Callable[[Decoding], str]] = {
        "tokens": lambda d: str(len(d.sequences[0].tokens)),
        "target passes": lambda d: str(d.target_passes),
        "tokens per pass": lambda d: f"{d.tau:.2f}",
        "seconds": lambda d: f"{sum(d.seconds.values()):.2f}",
    }
    typer.echo(f"\n{'':15}  " + "  ".join(f"{name:>11}" for name in columns))
    for name, cell in rows.items():
        cells = (f"{cell(decoding):>{max(11, len(column))}}" for column, decoding in columns.items())
        typer.echo(f"{name:15}  " + "  ".join(cells))
    fast = list(columns.values())[-1]
    typer.echo(f"\naccepted lengths  {' '.join(map(str, fast.sequences[0].accept_lens))}".rstrip())
    shares = {stage: seconds / sum(fast.seconds.values()) for stage, seconds in fast.seconds.items()}
    typer.echo(f"ddtree's time     {', '.join(f'{stage} {share:.0%}' for stage, share in shares.items())}")
    typer.echo(f"identical: {'yes' if identical(columns) else 'no'}")
