"""The target's cache: one latent row a token and layer."""

import numpy as np

from . import ops
from .place import fetched, kernel_of, placed
from .reference.arrays import Float, Index
from .reference.config import ModelConfig

__all__ = ["LatentCache"]

CAPACITY = 64  # rows of a new cache


class LatentCache:
    """Rows (latent, rotated key) of all layers for a batch of sequences, behind each other in order of position.

    Rows below `length_B` are committed. A pass writes the rows of its slots behind them; they count only once
    `commit` keeps some. At K2.6's size a row has 576 numbers. They are where the backend needs them; the lengths are
    numpy's.
    """

    def __init__(self, config: ModelConfig, batch: int, dtype: type[np.floating], backend: str = "numpy") -> None:
        shape = config.num_hidden_layers, batch, CAPACITY, config.kv_lora_rank + config.qk_rope_head_dim
        self._backend = backend
        self._compact = kernel_of(ops.compact_cache, backend)
        self.kv_YBSX: Float = placed(np.zeros(shape, dtype), backend)
        self.length_B: Index = np.zeros(batch, np.int32)

    def reserve(self, slots: int) -> None:
        """Make room for `slots` rows behind the longest sequence; grows to twice the need, in new memory."""
        need = int(self.length_B.max(initial=0)) + slots
        capacity = self.kv_YBSX.shape[2]
        if need > capacity:
            self.kv_YBSX = np.pad(self.kv_YBSX, ((0, 0), (0, 0), (0, 2 * need - capacity), (0, 0)))

    def commit(self, path_BN: Index, accept_len_B: Index) -> None:
        """Keep the rows of accepted paths, in place, and forget the other slots; see `compact_cache`."""
        given = (placed(array, self._backend) for array in (self.length_B, path_BN, accept_len_B))
        self.length_B = fetched(self._compact(self.kv_YBSX, *given))

    def keep(self, rows: list[int]) -> None:
        """Keep these sequences of the batch, in this order."""
        self.kv_YBSX = self.kv_YBSX[:, rows].copy()  # a layer must be one block for the kernels
        self.length_B = self.length_B[rows]
