"""Load a target model from a Hugging Face folder, into plain numpy arrays."""

import re
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .hf_config import HfConfig, parse_config, read_config
from .hf_tensors import Tensors, one_dtype, open_tensors, parsed
from .hf_values import ModelError
from .reference.arrays import Float
from .reference.int4 import GROUP, NIBBLES
from .reference.int4_dequant import int4_dequant
from .reference.weights import Attention, Layer, Mlp, Moe, Weights

__all__ = ["ModelError", "load_model", "parse_config"]

PREFIXES = ("", "language_model.")  # the second in Kimi K2.5 and K2.6, beside a vision tower
ROTARY = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq|model\.rotary_emb\.inv_freq")
LAYER = re.compile(r"model\.layers\.(\d+)\.")


def load_model(folder: str | PathLike[str], dtype: DTypeLike = np.float32, *, int4_rounded: bool = True) -> Weights:
    """Load a DeepSeek-V3 or Kimi K2 checkpoint as Hugging Face stores it.

    Every tensor that the model needs must be there, in float32, bfloat16 or float16, and finite. Every tensor that is
    there must be one that the model uses: an unknown one (a bias, say) would mean that the model computes something
    else. Ignored are stored rotary frequencies, the layers for multi-token prediction after the last, and all that
    lies outside `language_model.` in a checkpoint that has it.

    Parameters
    ----------
    folder : str or PathLike
        Holds config.json, and model.safetensors or the shards of a model.safetensors.index.json. The first goes if
        both are there.
    dtype : dtype_like
        float32 or float64, of all arrays; the cast is exact.
    int4_rounded : bool
        For routed experts in INT4: round each weight to bfloat16, as compressed-tensors does; see `int4_dequant`.

    Returns
    -------
    Weights
        `lm_head_VD` is `embed_VD` itself if the config ties them.

    Raises
    ------
    ModelError
        The config is not supported (see `parse_config`), or a file or a tensor is missing, malformed, of another shape
        or dtype, unknown, or not finite. The message names it.
    OSError
        A file cannot be read.

    Cost
    ----
    The memory of the weights in `dtype`, and once more that of the largest stack of expert matrices.

    Invariants
    ----------
    - what was written is loaded (test_every_variant_of_a_model_is_loaded_as_it_was_written)
    - the cast is exact (test_a_checkpoint_is_cast_exactly)
    - kv_b_proj is split per head (test_kv_b_proj_is_split_per_head_keys_first)
    - a checkpoint with one fault is refused by name (test_a_checkpoint_with_one_fault_is_refused_by_name)

    Examples
    --------
    >>> load_model("no/such/folder")
    Traceback (most recent call last):
    kdtree.hf_values.ModelError: no/such/folder/config.json: no such file
    """
    precision = one_dtype(dtype)
    folder = Path(fspath(folder))
    config = parsed(folder / "config.json", read_config)
    with open_tensors(folder, precision) as tensors:
        return Reader(tensors, prefix_of(tensors), config, int4_rounded).weights()


def prefix_of(tensors: Tensors) -> str:
    """Return what stands before the names of the language model."""
    for prefix in PREFIXES:
        if f"{prefix}model.embed_tokens.weight" in tensors:
            return prefix
    raise tensors.wrong("model.embed_tokens.weight", f"is missing, also under {PREFIXES[1]!r}")


class Reader(NamedTuple):
    """Builds `Weights` from the tensors of a checkpoint."""

    tensors: Tensors
    prefix: str
    config: HfConfig
    int4_rounded: bool

    def weights(self) -> Weights:
        """Read the whole model, then see that nothing is left."""
        model = self.config.model
        embed_VD = self.matrix("model.embed_tokens", model.vocab_size, model.hidden_size)
        weights = Weights(
            config=model,
            embed_VD=embed_VD,
            layers=tuple(self.layer(index) for index in range(model.num_hidden_layers)),
            norm=self.matrix("model.norm", model.hidden_size),
            lm_head_VD=self.lm_head(embed_VD),
        )
        for name in self.left_over():
            raise self.tensors.wrong(name, "is not one that this model uses")
        return weights

    def lm_head(self, embed_VD: Float) -> Float:
        """Return the embedding if the config ties them; a matrix that is stored all the same must equal it."""
        name = f"{self.prefix}lm_head.weight"
        if not self.config.tied:
            return self.matrix("lm_head", *embed_VD.shape)
        if name in self.tensors and not np.array_equal(self.matrix("lm_head", *embed_VD.shape), embed_VD):
            raise self.tensors.wrong(name, "differs from the embedding, though tie_word_embeddings is true")
        return embed_VD

    def layer(self, index: int) -> Layer:
        """Read a decoder layer."""
        model, name = self.config.model, f"model.layers.{index}"
        D, F = model.hidden_size, model.intermediate_size
        return Layer(
            input_layernorm=self.matrix(f"{name}.input_layernorm", D),
            attention=self.attention(f"{name}.self_attn"),
            post_attention_layernorm=self.matrix(f"{name}.post_attention_layernorm", D),
            mlp=self.mlp(f"{name}.mlp", F, D) if index < model.first_k_dense_replace else self.moe(f"{name}.mlp"),
        )

    def attention(self, name: str) -> Attention:
        """Read latent attention; the rows of kv_b_proj are, head by head, those of the keys and those of the values."""
        model = self.config.model
        D, H, C, Q = model.hidden_size, model.num_attention_heads, model.kv_lora_rank, model.q_lora_rank
        U, R, M = model.qk_nope_head_dim, model.qk_rope_head_dim, model.v_head_dim
        kv_b_HOC = self.matrix(f"{name}.kv_b_proj", H * (U + M), C).reshape(H, U + M, C)
        return Attention(
            q_a_proj=self.matrix(f"{name}.q_a_proj", Q, D) if Q else None,
            q_a_layernorm=self.matrix(f"{name}.q_a_layernorm", Q) if Q else None,
            q_proj=self.matrix(f"{name}.q_b_proj" if Q else f"{name}.q_proj", H * (U + R), Q or D),
            kv_a_proj_with_mqa=self.matrix(f"{name}.kv_a_proj_with_mqa", C + R, D),
            kv_a_layernorm=self.matrix(f"{name}.kv_a_layernorm", C),
            k_b_HUC=np.ascontiguousarray(kv_b_HOC[:, :U]),
            v_b_HMC=np.ascontiguousarray(kv_b_HOC[:, U:]),
            o_proj=self.matrix(f"{name}.o_proj", D, H * M),
        )

    def mlp(self, name: str, F: int, D: int) -> Mlp:
        """Read a gated MLP."""
        return Mlp(
            gate_FD=self.matrix(f"{name}.gate_proj", F, D),
            up_FD=self.matrix(f"{name}.up_proj", F, D),
            down_DF=self.matrix(f"{name}.down_proj", D, F),
        )

    def moe(self, name: str) -> Moe:
        """Read a mixture of experts, each kind of matrix stacked."""
        model = self.config.model
        E, F, D = model.n_routed_experts, model.moe_intermediate_size, model.hidden_size
        shared = F * model.n_shared_experts
        biased = model.scoring_func == "sigmoid"
        return Moe(
            router_ED=self.matrix(f"{name}.gate", E, D),
            bias_E=self.floats(f"{name}.gate.e_score_correction_bias", E)
            if biased
            else np.zeros(E, self.tensors.dtype),
            gate_EFD=self.experts(name, "gate_proj", F, D),
            up_EFD=self.experts(name, "up_proj", F, D),
            down_EDF=self.experts(name, "down_proj", D, F),
            shared=self.mlp(f"{name}.shared_experts", shared, D) if shared else None,
        )

    def experts(self, name: str, kind: str, O: int, I: int) -> Float:  # noqa: E741
        """Read one matrix of every expert."""
        read = self.int4 if self.config.int4 else self.matrix
        return np.stack([read(f"{name}.experts.{e}.{kind}", O, I) for e in range(self.config.model.n_routed_experts)])

    def int4(self, name: str, O: int, I: int) -> Float:  # noqa: E741
        """Read a packed INT4 matrix."""
        tensors, name = self.tensors, self.prefix + name
        shape = tensors.take(f"{name}.weight_shape", (2,), ("I32", "I64"))
        if tuple(shape) != (O, I):
            raise tensors.wrong(f"{name}.weight_shape", f"is {tuple(map(int, shape))}, needs {(O, I)}")
        packed_OW = tensors.take(f"{name}.weight_packed", (O, -(-I // NIBBLES)), ("I32",))
        scale_OG = tensors.take(f"{name}.weight_scale", (O, -(-I // GROUP)), ("BF16",)).astype(np.float32)
        try:
            return int4_dequant(packed_OW, scale_OG, I, self.int4_rounded).astype(tensors.dtype, copy=False)
        except ValueError as error:
            raise tensors.wrong(f"{name}.weight_scale", f"is refused: {error}") from None

    def matrix(self, name: str, *shape: int) -> Float:
        """Read the weight of a module."""
        return self.floats(f"{name}.weight", *shape)

    def floats(self, name: str, *shape: int) -> Float:
        """Read a tensor of the language model."""
        return self.tensors.floats(self.prefix + name, *shape)

    def left_over(self) -> Iterator[str]:
        """Return the names of tensors that should not be there."""
        last = self.config.model.num_hidden_layers
        for name in sorted(self.tensors.where.keys() - self.tensors.taken):
            own = name.removeprefix(self.prefix)
            layer = LAYER.match(own)
            extra = layer is not None and last <= int(layer[1]) < last + self.config.mtp_layers
            if name.startswith(self.prefix) and not ROTARY.fullmatch(own) and not extra:
                yield name
