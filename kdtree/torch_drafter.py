"""The block-diffusion drafter in PyTorch: what trains one, and what records with one on a GPU (extra `hf`).

The truth is `reference/block_diffusion.py`; this module computes the same for many anchors of many texts at once.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from .reference.drafter_config import DrafterConfig
from .reference.rope import inverse_frequencies

__all__ = ["TorchDrafter"]


class TorchDrafter(nn.Module):
    """A DFlash drafter whose parameters have the names of its checkpoint.

    Parameters
    ----------
    config : DrafterConfig

    Invariants
    ----------
    - it drafts what the numpy truth drafts (test_the_torch_drafter_drafts_what_the_truth_drafts)
    """

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        # no buffer: it stays float64 when the module is cast
        self.inv_freq_J = torch.from_numpy(inverse_frequencies(config.head_dim, config.rope_theta, config.yarn))
        D = config.hidden_size
        self.fc = nn.Linear(config.feature_size, D, bias=False)
        self.hidden_norm = Norm(D, config.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = Norm(D, config.rms_norm_eps)

    def forward(self, feature_BTI: Tensor, x_BAND: Tensor, anchor_BA: Tensor) -> Tensor:
        """Run a block at each of A anchors of each of B texts.

        Parameters
        ----------
        feature_BTI : float, shape (B, T, I)
            Of the tokens at positions 0..T - 1; see `reference.block_diffusion.target_features`.
        x_BAND : float, shape (B, A, block_size, D)
            The target's embeddings of each anchor token and of the masks behind it.
        anchor_BA : int, shape (B, A)
            Positions of the anchors, 0..T. A block sees the tokens before its anchor and itself, and no other block.

        Returns
        -------
        hidden_BAND : float, shape (B, A, block_size, D)
            After the final norm; the target's lm_head makes logits of it. Row k >= 1 is about position anchor + k.
        """
        B, A, N, D = x_BAND.shape
        c_BTD = self.hidden_norm(self.fc(feature_BTI))
        position_BAN = anchor_BA[..., None] + torch.arange(N, device=x_BAND.device)
        visible_BQS = block_mask(c_BTD.shape[1], anchor_BA, N)
        angles = self.rotation(c_BTD.shape[1], position_BAN.reshape(B, A * N), x_BAND.dtype)
        x_BQD = x_BAND.reshape(B, A * N, D)
        for layer in self.layers:
            x_BQD = layer(x_BQD, c_BTD, visible_BQS, *angles)
        normed_BQD: Tensor = self.norm(x_BQD)
        return normed_BQD.reshape(B, A, N, D)

    def rotation(self, T: int, position_BQ: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin of every row's angles, context first, each (B, 1, T + Q, head_dim / 2)."""
        context_BT = torch.arange(T, device=position_BQ.device).expand(len(position_BQ), T)
        position_BS = torch.cat([context_BT, position_BQ], dim=1)
        angle_BSJ = position_BS[..., None] * self.inv_freq_J.to(position_BS.device)
        scale = self.config.yarn.rope_scale if self.config.yarn else 1.0
        return (angle_BSJ.cos() * scale).to(dtype)[:, None], (angle_BSJ.sin() * scale).to(dtype)[:, None]


def block_mask(T: int, anchor_BA: Tensor, N: int) -> Tensor:
    """Return which of T context rows and A N block rows each block row sees, bool (B, 1, A N, T + A N)."""
    B, A = anchor_BA.shape
    before_BAT = torch.arange(T, device=anchor_BA.device) < anchor_BA[..., None]
    same_AA = torch.eye(A, dtype=torch.bool, device=anchor_BA.device)
    own_BAQ = same_AA.repeat_interleave(N, dim=1).expand(B, A, A * N)
    return torch.cat([before_BAT, own_BAQ], dim=2).repeat_interleave(N, dim=1)[:, None]


class Norm(nn.Module):
    """RMS norm with a weight, in float32 inside."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Norm the last axis."""
        wide = x.double() if x.dtype == torch.float64 else x.float()
        return rms_norm(wide, self.weight.shape, eps=self.eps).to(x.dtype) * self.weight


class Layer(nn.Module):
    """Attention over context and own block, then a gated MLP."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = BlockAttention(config)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMlp(config.hidden_size, config.intermediate_size)

    def forward(self, x_BQD: Tensor, c_BTD: Tensor, visible: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the block rows after this layer; the context is normed once for all layers, not here."""
        x_BQD = x_BQD + self.self_attn(self.input_layernorm(x_BQD), c_BTD, visible, cos, sin)
        mixed: Tensor = x_BQD + self.mlp(self.post_attention_layernorm(x_BQD))
        return mixed


class BlockAttention(nn.Module):
    """Queries of the blocks; keys and values of the context and of the blocks, by the same matrices."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        D, M = config.hidden_size, config.head_dim
        H, G = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = M
        self.q_proj = nn.Linear(D, H * M, bias=False)
        self.k_proj = nn.Linear(D, G * M, bias=False)
        self.v_proj = nn.Linear(D, G * M, bias=False)
        self.o_proj = nn.Linear(H * M, D, bias=False)
        self.q_norm = Norm(M, config.rms_norm_eps)
        self.k_norm = Norm(M, config.rms_norm_eps)

    def forward(self, h_BQD: Tensor, c_BTD: Tensor, visible: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return what attention adds to the block rows."""
        seen_BSD = torch.cat([c_BTD, h_BQD], dim=1)
        Q = h_BQD.shape[1]
        q_BHQM = rotate(self.q_norm(self.heads(self.q_proj(h_BQD))), cos[..., -Q:, :], sin[..., -Q:, :])
        key_BGSM = rotate(self.k_norm(self.heads(self.k_proj(seen_BSD))), cos, sin)
        value_BGSM = self.heads(self.v_proj(seen_BSD))
        shared = q_BHQM.shape[1] // key_BGSM.shape[1]
        mixed_BHQM = scaled_dot_product_attention(
            q_BHQM,
            key_BGSM.repeat_interleave(shared, dim=1),
            value_BGSM.repeat_interleave(shared, dim=1),
            attn_mask=visible,
        )
        added: Tensor = self.o_proj(mixed_BHQM.transpose(1, 2).flatten(2))
        return added

    def heads(self, x_BSD: Tensor) -> Tensor:
        """Split into heads, which come before the rows."""
        return x_BSD.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class GatedMlp(nn.Module):
    """down(silu(gate x) * up x)."""

    def __init__(self, D: int, F: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(D, F, bias=False)
        self.up_proj = nn.Linear(D, F, bias=False)
        self.down_proj = nn.Linear(F, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Run the MLP on the last axis."""
        mixed: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return mixed


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs (x[j], x[j + M / 2]) of the last axis by their angles."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
