"""Train the drafter on what the target writes, and write it as a DFlash folder.

    python data/train/drafter.py [--size full|pilot]

Resumes where it was stopped. Needs target.py to have run.
"""

import argparse
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from corpus import load
from export import round_to_half, save_drafter
from kdtree.torch_drafter import TorchDrafter
from rollouts import Rollouts, coldest, load_rollouts
from sizes import MASK, SEED, SIZES, Size
from target import load_target
from target_model import TargetModel
from training import device, folder_of, mixed_precision, train

__all__ = ["train_drafter"]

DECAY = 5.0  # tokens over which the weight of a row falls by e: early rows decide whether later ones count
HELD_OUT = 512  # rollouts that only measure


class Batch(NamedTuple):
    """Blocks of B texts, A anchors each, and what the target thinks there; L rows to predict a block."""

    feature_BTI: Tensor
    token_BAN: Tensor  #: the anchor and its masks
    anchor_BA: Tensor
    next_BAL: Tensor  #: what was written
    wanted_BALV: Tensor  #: the distribution that it was drawn from


def train_drafter(size: Size) -> TorchDrafter:
    """Return a trained drafter, its weights rounded to float16."""
    torch.set_float32_matmul_precision("high")
    target = load_target(size)
    rollouts = load_rollouts(target, size, load().train_T)
    torch.manual_seed(SEED)
    drafter = TorchDrafter(size.drafter).to(device())
    on_gpu = device().type == "cuda"
    read, run = (torch.compile(target), torch.compile(drafter)) if on_gpu else (target, drafter)
    texts = len(rollouts.token_BT) - HELD_OUT
    weight_L = (-torch.arange(size.drafter.draft_len, device=device()) / DECAY).exp()

    def loss_of(step: int) -> Tensor:
        rng = np.random.default_rng([SEED, step])
        batch = make_batch(read, size, rollouts, rng.integers(0, texts, size.drafter_stage.batch), rng)
        logprob_BALV = predict(run, target, batch)
        loss_BAL = -(batch.wanted_BALV * logprob_BALV).sum(-1)
        return (loss_BAL * weight_L).sum(-1).mean() / weight_L.sum()

    train(folder_of(size), "drafter", drafter, size.drafter_stage, loss_of)
    round_to_half(drafter)
    measure(read, run, target, size, rollouts)
    return drafter


@torch.no_grad()
def make_batch(read: TargetModel, size: Size, rollouts: Rollouts, rows: np.ndarray, rng: np.random.Generator) -> Batch:
    """Let the target read some texts, and lay blocks at random anchors."""
    row_B = torch.from_numpy(rows).to(device())
    token_BT, temperature_B = rollouts.token_BT[row_B].long(), rollouts.temperature_B[row_B]
    with mixed_precision():
        logit_BTV, hidden_YBTD, _ = read(token_BT)
    L = size.drafter.draft_len
    anchors = rng.integers(1, size.context - L, (len(rows), size.anchors))
    anchor_BA = torch.from_numpy(anchors).to(device())
    position_BAL = anchor_BA[..., None] + torch.arange(1, L + 1, device=device())
    batch_B11 = torch.arange(len(rows), device=device())[:, None, None]
    anchor_token_BA1 = token_BT.gather(1, anchor_BA)[..., None]
    wanted_BTV = (logit_BTV / coldest(temperature_B)[:, None, None]).softmax(-1)
    return Batch(
        feature_BTI=torch.cat([hidden_YBTD[layer] for layer in size.drafter.target_layer_ids], dim=-1),
        token_BAN=torch.cat([anchor_token_BA1, torch.full_like(position_BAL, MASK)], dim=-1),
        anchor_BA=anchor_BA,
        next_BAL=token_BT[batch_B11, position_BAL],
        wanted_BALV=wanted_BTV[batch_B11, position_BAL - 1],
    )


def predict(run: TorchDrafter, target: TargetModel, batch: Batch) -> Tensor:
    """Return the drafter's log-probs of every row behind its anchor."""
    with mixed_precision():
        hidden_BAND = run(batch.feature_BTI, target.embed_tokens(batch.token_BAN), batch.anchor_BA)
        logit_BALV = target.lm_head(hidden_BAND[:, :, 1:])
    return logit_BALV.float().log_softmax(-1)


@torch.no_grad()
def measure(read: TargetModel, run: TorchDrafter, target: TargetModel, size: Size, rollouts: Rollouts) -> None:
    """Print how often the best token is right, by depth, and the mean accepted length of chains at random anchors."""
    rows = np.arange(len(rollouts.token_BT) - HELD_OUT, len(rollouts.token_BT))
    right_BAL, temperature_B = [], rollouts.temperature_B[rows[0] :].cpu()
    for part in np.array_split(rows, max(1, len(rows) // size.drafter_stage.batch)):
        batch = make_batch(read, size, rollouts, part, np.random.default_rng(SEED))
        right_BAL.append((predict(run, target, batch).argmax(-1) == batch.next_BAL).cpu())
    right = torch.cat(right_BAL)
    for temperature in sorted(set(temperature_B.tolist())):
        chosen = right[temperature_B == temperature].float()
        hits = " ".join(f"{hit:.2f}" for hit in chosen.mean((0, 1)).tolist())
        print(f"T = {temperature:.1f}: chain {1 + chosen.cumprod(-1).sum(-1).mean():.3f}, best token right {hits}")


def main() -> None:
    """Train a drafter in the size that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    size = SIZES[parser.parse_args().size]
    save_drafter(train_drafter(size), size.target.num_hidden_layers, folder_of(size) / "tiny-drafter")


if __name__ == "__main__":
    main()
