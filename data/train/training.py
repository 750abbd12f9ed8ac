"""What both stages of training share: the device, the schedule, the loop, and checkpoints to resume from."""

from collections.abc import Callable
from math import cos, pi
from pathlib import Path
from time import perf_counter

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from corpus import OUT
from kdtree.files import atomic_write
from sizes import Size, Stage

__all__ = ["device", "folder_of", "learning_rate", "mixed_precision", "train"]

WARM_UP, FINAL = 0.03, 0.05  # shares of the steps and of the peak rate
REPORT = 250  # steps between two printed losses
SAVE = 1000  # steps between two checkpoints


def device() -> torch.device:
    """Return the GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def mixed_precision() -> torch.autocast:
    """Return the context in which products run in bfloat16 on a GPU and in float32 elsewhere."""
    return torch.autocast(device().type, dtype=torch.bfloat16, enabled=device().type == "cuda")


def learning_rate(step: int, stage: Stage) -> float:
    """Rise to the peak over 3% of the steps, then fall along a cosine to 5% of it."""
    warm_up = max(1, round(WARM_UP * stage.steps))
    if step < warm_up:
        return stage.peak_lr * (step + 1) / warm_up
    along = (step - warm_up) / max(1, stage.steps - warm_up)
    return stage.peak_lr * (FINAL + (1 - FINAL) * (1 + cos(pi * along)) / 2)


def optimizer_of(model: nn.Module) -> torch.optim.AdamW:
    """Return AdamW with weight decay on matrices alone."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=device().type == "cuda")


def folder_of(size: Size) -> Path:
    """Return the folder of what is trained in a size."""
    folder = OUT / size.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def train(folder: Path, name: str, model: nn.Module, stage: Stage, loss_of: Callable[[int], Tensor]) -> None:
    """Train a model in place; a run that was stopped goes on from its last checkpoint.

    Parameters
    ----------
    folder, name : Path, str
        Of the checkpoint.
    loss_of : callable
        Loss of a step, in nats. What it draws depends on the step's number alone, so that a resumed run sees the data
        of one that was never stopped.
    """
    checkpoint = folder / f"{name}.checkpoint.pt"
    optimizer = optimizer_of(model)
    first = resume(checkpoint, model, optimizer)
    columns = TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    started = perf_counter()
    with Progress(*columns) as bars:
        for step in bars.track(range(first, stage.steps), total=stage.steps, completed=first):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, stage)
            loss = loss_of(step)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if (step + 1) % REPORT == 0:
                rate = (step + 1 - first) / (perf_counter() - started)
                bars.console.print(f"{name} step {step + 1}: loss {loss.item():.4f} nats, {rate:.1f} steps/s")
            if (step + 1) % SAVE == 0:
                save(checkpoint, step + 1, model, optimizer)


def resume(checkpoint: Path, model: nn.Module, optimizer: torch.optim.AdamW) -> int:
    """Load a checkpoint if there is one, and return the step to go on with."""
    if not checkpoint.is_file():
        return 0
    saved = torch.load(checkpoint, map_location=device(), weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["step"])


def save(checkpoint: Path, step: int, model: nn.Module, optimizer: torch.optim.AdamW) -> None:
    """Write a checkpoint, all of it or nothing."""
    with atomic_write(checkpoint) as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
