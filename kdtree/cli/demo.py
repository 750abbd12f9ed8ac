"""`kdtree demo`: plain decoding and DDTree side by side."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from kdtree.decode import autoregressive, speculative
from kdtree.decode_result import Decoding
from kdtree.drafter_loading import load_drafter
from kdtree.drafters import Drafter
from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.drafters.oracle import Oracle
from kdtree.loading import load_model
from kdtree.sampling import Seeded, greedy
from kdtree.target import Target

from .options import integer, progress_bar

__all__ = ["demo"]

SHIPPED = Path(str(files("kdtree"))) / "data" / "golden" / "hf" / "k26"
PROMPT_LEN = 16
DRAFT_LEN, ERROR_RATE = 7, 0.2  # of the oracle
MOST = 4096  # nodes
SHOWN = 24  # tokens


def demo(
    model: Annotated[
        Path | None,
        typer.Argument(help="A Hugging Face folder of a DeepSeek-V3 or Kimi-K2 model; a tiny one if left out."),
    ] = None,
    drafter: Annotated[
        Path | None, typer.Option(help="A block-diffusion drafter's folder; an oracle that errs if left out.")
    ] = None,
    prompt: Annotated[str, typer.Option(help="Comma list of token ids; random ones if left out.")] = "",
    budget: Annotated[int, typer.Option(parser=integer, metavar="N", help="Nodes below the root.")] = 64,
    max_new_tokens: Annotated[int, typer.Option(parser=integer, metavar="N", help="Tokens to write.")] = 96,
    temperature: Annotated[float, typer.Option(help="0 is greedy; above it, seeded sampling.")] = 0.0,
    seed: Annotated[
        int, typer.Option(parser=integer, metavar="N", help="Of sampling, the random prompt and the oracle.")
    ] = 0,
) -> None:
    """Decode one prompt plainly and with trees, and compare tokens, target passes and time."""
    if budget > MOST:
        raise ValueError(f"--budget: got {budget}, needs at most {MOST}: a pass holds a mask of budget x budget")
    sampler = Seeded(temperature, seed) if temperature else greedy
    weights = load_model(model or SHIPPED)
    learned = BlockDiffusion(load_drafter(drafter), weights) if drafter else None
    target = Target(weights, backend="numba")
    tokens = parse_prompt(prompt, weights.config.vocab_size, seed)
    typer.echo(f"model    {model or 'a tiny one with random weights: what it writes means nothing'}")
    warm_up(target, tokens)
    with_progress = progress_of(max_new_tokens)
    plain = with_progress("plain", lambda on_round: autoregressive(
        target, [tokens], max_new_tokens=max_new_tokens, sampler=sampler, on_round=on_round
    ))  # fmt: skip
    chosen: Drafter = learned or oracle(tokens, plain, weights.config.vocab_size, seed)
    typer.echo(f"drafter  {drafter or f'an oracle that knows the tokens and errs with probability {ERROR_RATE}'}")
    fast = with_progress("ddtree", lambda on_round: speculative(
        target, chosen, [tokens], budget=budget, max_new_tokens=max_new_tokens, sampler=sampler, on_round=on_round
    ))  # fmt: skip
    print_comparison(plain, fast, budget)
    if plain.sequences[0].tokens != fast.sequences[0].tokens:
        raise typer.Exit(1)


def warm_up(target: Target, tokens: list[int]) -> None:
    """Decode two tokens with each way, so that neither is timed while it compiles."""
    nobody = Oracle([tokens], [[]], draft_len=1, vocab_size=target.config.vocab_size)
    speculative(target, nobody, [tokens], budget=1, max_new_tokens=2)


def parse_prompt(text: str, vocab_size: int, seed: int) -> list[int]:
    """Read token ids, or draw some."""
    if not text:
        return [int(token) for token in np.random.default_rng(seed).integers(0, vocab_size, PROMPT_LEN)]
    ids = text.split(",")
    for token in ids:
        if not token.strip().isdecimal() or int(token) >= vocab_size:
            raise ValueError(f"--prompt: got {token.strip()!r}, needs token ids from 0 to {vocab_size - 1}")
    return [int(token) for token in ids]


def progress_of(total: int) -> Callable[[str, Callable[[Any], Decoding]], Decoding]:
    """Return a function that runs one way of decoding under a bar that counts tokens."""

    def run(name: str, decode: Callable[[Any], Decoding]) -> Decoding:
        done = 0
        with progress_bar(name) as progress:

            def on_round(_sequence: int, tokens: tuple[int, ...]) -> None:
                nonlocal done
                done += len(tokens)
                progress(done, total)

            return decode(on_round)

    return run


def oracle(tokens: list[int], plain: Decoding, vocab_size: int, seed: int) -> Oracle:
    """Return an oracle for one prompt."""
    continuation = plain.sequences[0].tokens
    return Oracle(
        [tokens], [continuation], draft_len=DRAFT_LEN, vocab_size=vocab_size, error_rate=ERROR_RATE, seed=seed
    )


def print_comparison(plain: Decoding, fast: Decoding, budget: int) -> None:
    """Print both decodings side by side, and whether they wrote the same tokens."""
    rows: dict[str, Callable[[Decoding], str]] = {
        "tokens": lambda d: str(len(d.sequences[0].tokens)),
        "target passes": lambda d: str(d.target_passes),
        "tokens per pass": lambda d: f"{d.tau:.2f}",
        "seconds": lambda d: f"{sum(d.seconds.values()):.2f}",
    }
    typer.echo(f"{'':16}  {'plain':>10}  {f'ddtree, budget {budget}':>20}")
    for name, cell in rows.items():
        typer.echo(f"{name:16}  {cell(plain):>10}  {cell(fast):>20}")
    typer.echo(f"accepted lengths  {' '.join(map(str, fast.sequences[0].accept_lens))}")
    shares = {stage: seconds / sum(fast.seconds.values()) for stage, seconds in fast.seconds.items()}
    typer.echo(f"ddtree's time     {', '.join(f'{stage} {share:.0%}' for stage, share in shares.items())}")
    tokens = fast.sequences[0].tokens
    typer.echo(f"tokens            {' '.join(map(str, tokens[:SHOWN]))}{' ...' * (len(tokens) > SHOWN)}")
    typer.echo(f"identical: {'yes' if plain.sequences[0].tokens == fast.sequences[0].tokens else 'no'}")
