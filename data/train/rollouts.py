"""Texts that the target writes at several temperatures: what the drafter learns from."""

from typing import NamedTuple

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from corpus import Tokens
from kdtree.files import atomic_write
from sizes import SEED, Size
from target import windows
from target_model import TargetModel
from training import device, folder_of, mixed_precision

__all__ = ["TEMPERATURES", "Rollouts", "coldest", "load_rollouts", "write_rollouts"]

TEMPERATURES = (0.0, 0.3, 0.5, 0.7, 1.0)
COLDEST = 0.05  # where a softmax stands for the argmax
RAW = 4  # one text in so many is left as people wrote it
PROMPT = 4  # a prompt is one part in so many of a text
AT_ONCE = 4096


class Rollouts(NamedTuple):
    """B texts of T tokens."""

    token_BT: Tensor  #: int16
    temperature_B: Tensor  #: float32


def coldest(temperature: Tensor) -> Tensor:
    """Return temperatures that logits can be divided by."""
    return temperature.clamp(min=COLDEST)


def load_rollouts(model: TargetModel, size: Size, token_T: Tokens) -> Rollouts:
    """Return the texts, written once and kept: on a GPU the target would not write quite the same again."""
    kept = folder_of(size) / "rollouts.pt"
    if not kept.is_file():
        rollouts = write_rollouts(model, size, token_T)
        with atomic_write(kept) as file:
            torch.save(rollouts._asdict(), file)
    return Rollouts(**torch.load(kept, map_location=device(), weights_only=True))


@torch.no_grad()
def write_rollouts(model: TargetModel, size: Size, token_T: Tokens) -> Rollouts:
    """Let the target continue prompts from the corpus; one text in four stays the corpus's own, as if at T = 0.5."""
    blocks, temperatures = [], []
    for first in track(range(0, size.rollouts, AT_ONCE), "rollouts"):
        batch = min(AT_ONCE, size.rollouts - first)
        rng = np.random.default_rng([SEED, 1, first])
        text_BT = torch.from_numpy(windows(token_T, rng, batch, size.context)).to(device())
        choice_B = torch.arange(batch, device=device()) % (len(TEMPERATURES) * RAW)
        temperature_B = torch.tensor(TEMPERATURES, device=device())[choice_B % len(TEMPERATURES)]
        raw_B = choice_B % RAW == 0
        temperature_B[raw_B] = 0.5
        torch.manual_seed(SEED + 1 + first)
        written_BT = continue_texts(model, text_BT, size.context // PROMPT, temperature_B)
        blocks.append(torch.where(raw_B[:, None], text_BT, written_BT).short())
        temperatures.append(temperature_B)
    return Rollouts(torch.cat(blocks), torch.cat(temperatures))


def continue_texts(model: TargetModel, text_BT: Tensor, prompt_len: int, temperature_B: Tensor) -> Tensor:
    """Return the texts with all behind their first `prompt_len` tokens written by the target."""
    B, T = text_BT.shape
    token_BT = text_BT.clone()
    with mixed_precision():
        cache = model.new_cache(B, T, torch.bfloat16 if device().type == "cuda" else torch.float32)
        logit_BTV, _, _ = model(token_BT[:, :prompt_len], 0, cache)
        for t in range(prompt_len, T):
            probability_BV = (logit_BTV[:, -1] / coldest(temperature_B)[:, None]).softmax(-1)
            race_BV = probability_BV / torch.empty_like(probability_BV).exponential_()
            token_BT[:, t] = race_BV.argmax(-1)
            logit_BTV, _, _ = model(token_BT[:, t : t + 1], t, cache)
    return token_BT
