"""The target's cache: one latent row a token and layer."""

import numpy as np

from .reference.arrays import Float, Index
from .reference.compact_cache import compact_cache
from .reference.config import ModelConfig

__all__ = ["LatentCache"]


class LatentCache:
    """Rows (latent, rotated key) of all layers for a batch of sequences, behind each other in order of position.

    Rows below `length_B` are committed. A pass writes the rows of its slots behind them; they count only once
    `commit` keeps some. At K2.6's size a row has 576 numbers.
    """

    def __init__(self, config: ModelConfig, batch: int, dtype: type[np.floating], capacity: int = 64) -> None:
        width = config.kv_lora_rank + config.qk_rope_head_dim
        self.kv_YBSX: Float = np.zeros((config.num_hidden_layers, batch, capacity, width), dtype)
        self.length_B: Index = np.zeros(batch, np.int32)

    def reserve(self, slots: int) -> None:
        """Make room for `slots` rows behind the longest sequence; grows to twice the need, in new memory."""
        need = int(self.length_B.max(initial=0)) + slots
        capacity = self.kv_YBSX.shape[2]
        if need > capacity:
            self.kv_YBSX = np.pad(self.kv_YBSX, ((0, 0), (0, 0), (0, 2 * need - capacity), (0, 0)))

    def commit(self, path_BN: Index, accept_len_B: Index) -> None:
        """Keep the rows of accepted paths, in place, and forget the other slots; see `compact_cache`."""
        self.length_B = compact_cache(self.kv_YBSX, self.length_B, path_BN, accept_len_B)

    def keep(self, rows: list[int]) -> None:
        """Keep these sequences of the batch, in this order."""
        self.kv_YBSX = np.ascontiguousarray(self.kv_YBSX[:, rows])  # a layer must be one block for the kernels
        self.length_B = self.length_B[rows]
