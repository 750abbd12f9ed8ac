"""verify_attention of one sequence in PyTorch, as people write it: peers of the kernel, and the truth in float64."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["SCALE", "C", "Inputs", "R", "compiled", "draw", "error", "peers", "truth"]

C, R = 512, 64
SCALE = (128 + R) ** -0.5


class Inputs(NamedTuple):
    """What a peer is given: heads share the keys, and a key's first C numbers are its value."""

    q_NHX: Tensor
    kv_SX: Tensor
    hidden_N1S: Tensor  # bool, true where a slot does not see a row; the prefix is seen


def draw(visible_NN: Tensor, heads: int, prefix: int, dtype: torch.dtype) -> Inputs:
    """Draw normal queries and keys for a tree behind a prefix, on the device of the tree's mask."""
    N, device = len(visible_NN), visible_NN.device
    generator = torch.Generator(device).manual_seed(0)
    q_NHX, kv_SX = (
        torch.randn(shape, generator=generator, device=device).to(dtype)
        for shape in ((N, heads, C + R), (prefix + N, C + R))
    )
    hidden_NS = torch.cat([visible_NN.new_zeros(N, prefix), ~visible_NN], dim=1)
    return Inputs(q_NHX, kv_SX, hidden_NS[:, None])


def eager(q_NHX: Tensor, kv_SX: Tensor, hidden_N1S: Tensor) -> Tensor:
    """Return the mixed latents, (N, H, C), by way of all scores in memory; a product has a row a slot and head."""
    score_NHS = (q_NHX * SCALE) @ kv_SX.T
    return score_NHS.masked_fill_(hidden_N1S, -torch.inf).softmax(dim=-1) @ kv_SX[:, :C]


def cascade(q_NHX: Tensor, kv_SX: Tensor, hidden_N1S: Tensor) -> Tensor:
    """Return them by way of the prefix without a mask and the tree with one, merged by their log-sum-exp."""
    q_NHX, P = q_NHX * SCALE, len(kv_SX) - len(q_NHX)
    prefix_NHC, prefix_lse_NH1 = part(q_NHX @ kv_SX[:P].T, kv_SX[:P])
    score_NHN = (q_NHX @ kv_SX[P:].T).masked_fill_(hidden_N1S[:, :, P:], -torch.inf)
    tree_NHC, tree_lse_NH1 = part(score_NHN, kv_SX[P:])
    return torch.lerp(tree_NHC, prefix_NHC, torch.sigmoid(prefix_lse_NH1 - tree_lse_NH1).to(kv_SX.dtype))


def part(score_NHS: Tensor, kv_SX: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mixture over some rows, and the log-sum-exp of their scores in float32."""
    peak_NH1 = score_NHS.amax(dim=-1, keepdim=True)
    weight_NHS = score_NHS.sub_(peak_NH1).exp_()
    sum_NH1 = weight_NHS.sum(dim=-1, keepdim=True, dtype=torch.float32)
    return weight_NHS @ kv_SX[:, :C] / sum_NH1.to(kv_SX.dtype), peak_NH1 + sum_NH1.log()


def sdpa(q_NHX: Tensor, kv_SX: Tensor, seen_NS: Tensor) -> Tensor:
    """Return them by scaled_dot_product_attention, which chooses its kernel; the keys are expanded to all heads."""
    key_1HSX = kv_SX.expand(1, q_NHX.shape[1], -1, -1)
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q_NHX.transpose(0, 1)[None], key_1HSX, key_1HSX[..., :C], seen_NS, scale=SCALE)[0].transpose(0, 1)


def peers(inputs: Inputs) -> dict[str, Callable[[], Tensor]]:
    """Return what needs no compiler, by name."""
    seen_NS = ~inputs.hidden_N1S[:, 0]
    return {
        "eager": partial(eager, *inputs),
        "cascade": partial(cascade, *inputs),
        "SDPA": partial(sdpa, inputs.q_NHX, inputs.kv_SX, seen_NS),
    }


def compiled(inputs: Inputs) -> Callable[[], Tensor]:
    """Return `eager` by torch.compile for these sizes, in its default mode; raises what the compiler raises."""
    torch.compiler.reset()  # after some sizes of one function it would leave the next ones uncompiled
    call = partial(torch.compile(eager, dynamic=False), *inputs)
    call()
    return call


def truth(inputs: Inputs) -> Tensor:
    """Return the mixed latents in float64."""
    return eager(inputs.q_NHX.double(), inputs.kv_SX.double(), inputs.hidden_N1S)


def error(found_NHC: Tensor, true_NHC: Tensor) -> float:
    """Return the largest difference as a part of the largest number."""
    return float((found_NHC - true_NHC).abs().max() / true_NHC.abs().max())
