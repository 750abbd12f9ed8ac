"""Train the target on the corpus, and write it as a Hugging Face folder.

    python data/train/target.py [--size full|pilot]

Resumes where it was stopped. Needs corpus.py to have run.
"""

import argparse

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from corpus import Tokens, load
from export import round_to_half, save_target
from sizes import SEED, SIZES, Size
from target_model import TargetModel, new_target
from training import device, folder_of, mixed_precision, train

__all__ = ["load_target", "train_target", "windows"]

BALANCE = 1e-3  # a step of the routing bias


def windows(token_T: Tokens, rng: np.random.Generator, batch: int, length: int) -> NDArray[np.int64]:
    """Return `batch` random windows of a text."""
    start_B = rng.integers(0, len(token_T) - length, batch)
    return token_T[start_B[:, None] + np.arange(length)].astype(np.int64)


def train_target(size: Size) -> TargetModel:
    """Return a trained target, its weights rounded to float16."""
    torch.set_float32_matmul_precision("high")
    corpus = load()
    model = new_target(size.target, device())
    run = torch.compile(model) if device().type == "cuda" else model

    def loss_of(step: int) -> Tensor:
        rng = np.random.default_rng([SEED, step])
        window_BT = windows(corpus.train_T, rng, size.target_stage.batch, size.context + 1)
        token_BT = torch.from_numpy(window_BT).to(device())
        with mixed_precision():
            logit_BTV, _, load_YE = run(token_BT[:, :-1])
        model.balance(load_YE, BALANCE)
        return cross_entropy(logit_BTV.flatten(0, 1), token_BT[:, 1:].flatten())

    train(folder_of(size), "target", model, size.target_stage, loss_of)
    round_to_half(model)
    torch.save(model.state_dict(), folder_of(size) / "target.pt")
    print(f"held out: {bits_per_byte(model, corpus.held_out_T, size.context):.4f} bits per byte, by this trainer")
    return model


def load_target(size: Size) -> TargetModel:
    """Return the target that this script trained, frozen."""
    model = new_target(size.target, device())
    model.load_state_dict(torch.load(folder_of(size) / "target.pt", map_location=device(), weights_only=True))
    return model.requires_grad_(False)


@torch.no_grad()
def bits_per_byte(model: TargetModel, token_T: Tokens, length: int) -> float:
    """Return the mean over windows of `length` that follow each other; the first token of a window is not scored."""
    count = len(token_T) // length
    window_BT = torch.from_numpy(token_T[: count * length].reshape(count, length).astype(np.int64))
    total = 0.0
    for token_BT in window_BT.to(device()).split(64):
        logit_BTV, _, _ = model(token_BT)
        total += cross_entropy(logit_BTV[:, :-1].flatten(0, 1), token_BT[:, 1:].flatten(), reduction="sum").item()
    return total / np.log(2) / (count * (length - 1))


def main() -> None:
    """Train a target in the size that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    size = SIZES[parser.parse_args().size]
    save_target(train_target(size), folder_of(size) / "tiny-target")


if __name__ == "__main__":
    main()
