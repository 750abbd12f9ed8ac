"""`kdtree record`: a dense trace of a model and its drafter."""

from pathlib import Path
from typing import Annotated

import typer

from kdtree.drafter_loading import load_drafter
from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.hf_config import byte_start, parse_config
from kdtree.hf_tensors import parsed
from kdtree.loading import load_model
from kdtree.prompts import read_prompts
from kdtree.record import record as record_trace
from kdtree.record_models import ModelPair
from kdtree.replay import replay
from kdtree.target import Target

from .options import check_out, integer, progress_bar, sampler_of
from .sweep import print_table

__all__ = ["record"]

BUDGETS = 16, 64


def record(
    model: Annotated[Path, typer.Argument(help="A Hugging Face folder of a DeepSeek-V3 or Kimi-K2 model.")],
    prompts: Annotated[
        Path, typer.Argument(help='JSON Lines: {"tokens": [...]}, or {"text": "..."} for a byte-level model.')
    ],
    drafter: Annotated[Path, typer.Option(help="The folder of its block-diffusion drafter.")],
    out: Annotated[Path, typer.Option(help="The trace to write, .kdtr.")],
    anchors: Annotated[int, typer.Option(parser=integer, metavar="N", help="Tokens to write behind each prompt.")] = 96,
    ranks: Annotated[
        int, typer.Option(parser=integer, metavar="N", help="Tokens to keep of each row; the largest budget is enough.")
    ] = 64,
    temperature: Annotated[float, typer.Option(help="0 is greedy; above it, seeded sampling.")] = 0.0,
    seed: Annotated[int, typer.Option(parser=integer, metavar="N", help="Of sampling.")] = 0,
) -> None:
    """Let a model continue prompts, and record what its drafter proposes at every token (docs/recording.md)."""
    check_out(out, (".kdtr",))
    if ranks < 1:
        raise ValueError(f"--ranks: got {ranks}, needs 1 or more")
    sampler = sampler_of(temperature, seed)
    config, start = parsed(model / "config.json", parse_config), parsed(model / "config.json", byte_start)
    room = config.max_position_embeddings - anchors
    if room < 1:
        raise ValueError(f"--anchors: got {anchors}, needs less than the model's {room + anchors} positions")
    texts = read_prompts(prompts, start, config.vocab_size, room)
    weights = load_model(model)
    learned = BlockDiffusion(load_drafter(drafter), weights, exact=True)
    if anchors <= learned.draft_len:
        raise ValueError(f"--anchors: got {anchors}, needs more than the drafter's L = {learned.draft_len}")
    metadata = {
        "target": model.resolve().name,
        "drafter": drafter.resolve().name,
        "prompts": prompts.name,
        "decoding": f"seeded sampling, T = {temperature:g}, seed {seed}" if temperature else "greedy",
        **({} if start is None else {"tokens": "bytes"}),
    }
    pair = ModelPair(Target(weights, backend="numba"), learned)
    with progress_bar("record") as progress:
        trace = record_trace(
            pair.drafter, pair.target, texts, anchors=anchors, K=ranks, sampler=sampler, metadata=metadata,
            progress=progress,
        )  # fmt: skip
    trace.save(out)
    S, T, L, K = trace.topk_ids.shape
    typer.echo(f"wrote {out}: {S} sequences x {T} anchors, L = {L}, K = {K}")
    print_table({name: replay(trace, name, BUDGETS) for name in ("chain", "ddtree")})
