"""The target in PyTorch, to train it and to let it write: reference/transformer.py with attention expanded."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from kdtree.reference.config import ModelConfig
from kdtree.reference.rope import inverse_frequencies
from kdtree.torch_drafter import GatedMlp, Norm
from sizes import SEED

__all__ = ["Cache", "TargetModel", "new_target"]

LATENT_EPS = 1e-6  # of the norms inside attention, whatever rms_norm_eps is

Cache = list[tuple[Tensor, Tensor]]  # keys (B, H, S, U + R) and values (B, H, S, M) of each layer, filled in place


def new_target(config: ModelConfig, device: torch.device) -> "TargetModel":
    """Return a target with its first weights: deviation 0.02, smaller where a matrix ends a residual branch."""
    torch.manual_seed(SEED)
    model = TargetModel(config)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            ends = name.endswith(("o_proj.weight", "down_proj.weight", "down_EDF"))
            nn.init.normal_(weight, std=0.02 / (2 * config.num_hidden_layers) ** 0.5 if ends else 0.02)
    return model.to(device)


class TargetModel(nn.Module):
    """A DeepSeek-V3 shaped decoder; parameters are named as in its checkpoint, the experts stacked."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        # no buffer: it stays float64 when the module is cast
        self.inv_freq_J = torch.from_numpy(inverse_frequencies(config.qk_rope_head_dim, config.rope_theta, config.yarn))
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, token_BT: Tensor, start: int = 0, cache: Cache | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Run tokens at positions start, start + 1, ...; with a cache, behind the rows that it holds.

        Returns
        -------
        logit_BTV, hidden_YBTD (after each layer), load_YE (tokens of each expert of the MoE layers)
        """
        position_T = torch.arange(start, start + token_BT.shape[1], device=token_BT.device)
        angle_TJ = (position_T[:, None] * self.inv_freq_J.to(token_BT.device)).float()
        x_BTD = self.embed_tokens(token_BT)
        hiddens, loads = [], []
        for index, layer in enumerate(self.layers):
            x_BTD, load_E = layer(x_BTD, angle_TJ.cos(), angle_TJ.sin(), start, cache[index] if cache else None)
            hiddens.append(x_BTD)
            loads += [load_E] if load_E is not None else []
        return self.lm_head(self.norm(x_BTD)).float(), torch.stack(hiddens), torch.stack(loads)

    def new_cache(self, batch: int, length: int, dtype: torch.dtype) -> Cache:
        """Return an empty cache with room for `length` tokens."""
        config, device = self.config, self.lm_head.weight.device
        shape = batch, config.num_attention_heads, length
        widths = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
        return [
            tuple(torch.empty(*shape, width, dtype=dtype, device=device) for width in widths)  # type: ignore[misc]
            for _ in self.layers
        ]

    @torch.no_grad()
    def balance(self, load_YE: Tensor, rate: float) -> None:
        """Make experts with less than their share a little likelier to be chosen, and the others less likely."""
        moes = [layer.mlp for layer in self.layers if isinstance(layer.mlp, Moe)]
        for moe, load_E in zip(moes, load_YE.float(), strict=True):
            moe.gate.e_score_correction_bias += rate * (load_E.mean() - load_E).sign()


class Layer(nn.Module):
    """Latent attention, then a gated MLP or a mixture of experts."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        D = config.hidden_size
        self.input_layernorm = Norm(D, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = Norm(D, config.rms_norm_eps)
        dense = index < config.first_k_dense_replace
        self.mlp = GatedMlp(D, config.intermediate_size) if dense else Moe(config)

    def forward(
        self, x_BTD: Tensor, cos: Tensor, sin: Tensor, start: int, cache: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the stream after this layer and, of a mixture, the tokens of each expert."""
        x_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), cos, sin, start, cache)
        mixed = self.mlp(self.post_attention_layernorm(x_BTD))
        added_BTD, load_E = mixed if isinstance(mixed, tuple) else (mixed, None)
        return x_BTD + added_BTD, load_E


class Attention(nn.Module):
    """Latent attention with keys and values expanded from the latent."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D, H = config.hidden_size, config.num_attention_heads
        Q, C = config.q_lora_rank, config.kv_lora_rank
        self.sizes = U, R, M = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        self.heads, self.latent = H, C
        assert Q is not None
        self.q_a_proj = nn.Linear(D, Q, bias=False)
        self.q_a_layernorm = Norm(Q, LATENT_EPS)
        self.q_b_proj = nn.Linear(Q, H * (U + R), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(D, C + R, bias=False)
        self.kv_a_layernorm = Norm(C, LATENT_EPS)
        self.kv_b_proj = nn.Linear(C, H * (U + M), bias=False)
        self.o_proj = nn.Linear(H * M, D, bias=False)

    def forward(
        self, h_BTD: Tensor, cos: Tensor, sin: Tensor, start: int, cache: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Return what attention adds to the stream."""
        (U, R, M), H = self.sizes, self.heads
        q_BHTX = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(h_BTD))).unflatten(-1, (H, U + R)).transpose(1, 2)
        q_nope, q_rope = q_BHTX.split([U, R], dim=-1)
        latent_BTC, rope_BTR = self.kv_a_proj_with_mqa(h_BTD).split([self.latent, R], dim=-1)
        kv_BHTO = self.kv_b_proj(self.kv_a_layernorm(latent_BTC)).unflatten(-1, (H, U + M)).transpose(1, 2)
        key_nope, value = kv_BHTO.split([U, M], dim=-1)
        key_rope = rotate_pairs(rope_BTR[:, None], cos, sin).expand(-1, H, -1, -1)
        query = torch.cat([q_nope, rotate_pairs(q_rope, cos, sin)], dim=-1)
        key = torch.cat([key_nope, key_rope], dim=-1)
        if cache is not None:
            end = start + key.shape[2]
            cache[0][:, :, start:end], cache[1][:, :, start:end] = key, value
            key, value = cache[0][:, :, :end], cache[1][:, :, :end]
        mixed_BHTM = scaled_dot_product_attention(
            query, key.to(query.dtype), value.to(query.dtype), is_causal=start == 0
        )
        added: Tensor = self.o_proj(mixed_BHTM.transpose(1, 2).flatten(2))
        return added


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn neighbours (x[2j], x[2j + 1]) by their angles; the result has the halves behind each other."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1).to(x.dtype)


class Router(nn.Module):
    """A score for each expert, and the bias that only chooses."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        self.e_score_correction_bias: Tensor
        self.register_buffer("e_score_correction_bias", torch.zeros(config.n_routed_experts))
        self.chosen, self.scale = config.num_experts_per_tok, config.routed_scaling_factor

    def forward(self, h_TD: Tensor) -> Tensor:
        """Return the weight of every expert, 0 for those not chosen, in float32."""
        with torch.autocast(h_TD.device.type, enabled=False):
            score_TE = (h_TD.float() @ self.weight.float().T).sigmoid()
            chosen_TK = (score_TE + self.e_score_correction_bias).topk(self.chosen, dim=-1).indices
            weight_TK = score_TE.gather(-1, chosen_TK)
            weight_TK = self.scale * weight_TK / (weight_TK.sum(-1, keepdim=True) + 1e-20)
            return torch.zeros_like(score_TE).scatter(-1, chosen_TK, weight_TK)


class Moe(nn.Module):
    """A mixture of experts, all of them computed: at this size one large product beats a sorted one."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        E, F, D = config.n_routed_experts, config.moe_intermediate_size, config.hidden_size
        self.gate = Router(config)
        self.gate_EFD = nn.Parameter(torch.empty(E, F, D))
        self.up_EFD = nn.Parameter(torch.empty(E, F, D))
        self.down_EDF = nn.Parameter(torch.empty(E, D, F))
        self.shared_experts = GatedMlp(D, F * config.n_shared_experts)

    def forward(self, h_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum over experts, and the tokens of each."""
        weight_BTE = self.gate(h_BTD)
        E, F, _ = self.gate_EFD.shape
        gated = silu(nn.functional.linear(h_BTD, self.gate_EFD.flatten(0, 1)))
        inner = (gated * nn.functional.linear(h_BTD, self.up_EFD.flatten(0, 1))).unflatten(-1, (E, F))
        weighted = (inner * weight_BTE[..., None].to(inner.dtype)).flatten(-2)
        routed = nn.functional.linear(weighted, self.down_EDF.transpose(0, 1).flatten(1))
        return routed + self.shared_experts(h_BTD), (weight_BTE > 0).flatten(0, -2).sum(0)
