"""A target model that is ready to decode: weights, a backend and a mode."""

from types import SimpleNamespace

import numpy as np

from . import ops
from .cache import LatentCache
from .place import fetched, kernel_of, placed
from .reference import model_ops
from .reference.arrays import Bool, Float, Index
from .reference.transformer import Forward, forward
from .reference.tree_batch import TreeBatch
from .reference.tree_checks import real_slots
from .reference.weights import Weights

__all__ = ["Target", "model_namespace"]


def model_namespace(backend: str) -> SimpleNamespace:
    """Return the functions of `reference.model_ops` for a backend; see `kernel_of`."""
    return SimpleNamespace(**{name: kernel_of(ops.all_ops()[name], backend) for name in model_ops.__all__})


class Target:
    """Run a model on trees and prompts.

    Parameters
    ----------
    weights : Weights
    backend : str
        Where the ops of the model run; see `model_namespace`. On "cuda" the weights and the cache are on the GPU; what
        goes in and comes out is numpy's.
    exact : bool
        Slot by slot: the logits of a tree are those of plain decoding, bit for bit. Slower, and not on "cuda", where
        they are so without it, as on "numba".
    """

    def __init__(self, weights: Weights, backend: str = "numpy", exact: bool = False) -> None:
        if exact and backend == "cuda":
            raise ValueError("exact: got True on 'cuda', needs False: a row's bits depend on no other row there anyway")
        self.weights, self.config, self.exact = weights, weights.config, exact
        self._backend, self._ops = backend, model_namespace(backend)
        self._placed = placed(weights, backend)

    def new_cache(self, batch: int) -> LatentCache:
        """Return an empty cache for `batch` sequences."""
        return LatentCache(self.config, batch, self.weights.embed_VD.dtype.type, self._backend)

    def verify(self, cache: LatentCache, trees: TreeBatch) -> Forward:
        """Run the slots of one tree a sequence; the cache keeps none of them until `cache.commit`.

        Raises
        ------
        ValueError
            A real slot's position, length + depth, is not below max_position_embeddings.
        """
        position_BN = cache.length_B[:, None] + trees.depth_BN
        real_BN = real_slots(trees.node_count_B, trees.token_BN.shape[1])
        limit = self.config.max_position_embeddings
        for b, i in np.argwhere(real_BN & (position_BN >= limit)):
            raise ValueError(f"position: got {position_BN[b, i]} at batch row {b}, slot {i}; needs less than {limit}")
        cache.reserve(trees.token_BN.shape[1])
        visible_BNN = ops.visibility.on("numba")(trees.parent_BN, trees.node_count_B)
        return self._forward(
            cache.kv_YBSX, cache.length_B, trees.token_BN, position_BN, visible_BNN, trees.node_count_B
        )

    def read(self, cache: LatentCache, b: int, token_T: Index) -> Float:
        """Run tokens behind sequence `b`, commit them, and return their hidden streams, shape (Y + 1, T, D).

        Raises
        ------
        ValueError
            The sequence would reach max_position_embeddings; the cache is unchanged.
        """
        T, limit = len(token_T), self.config.max_position_embeddings
        start = int(cache.length_B[b])
        if start + T > limit:
            raise ValueError(f"token_T: got {T} tokens behind {start}, needs at most {limit} in all")
        if T == 0:
            return np.zeros((self.config.num_hidden_layers + 1, 0, self.config.hidden_size), cache.kv_YBSX.dtype)
        cache.reserve(T)
        result = self._forward(
            cache.kv_YBSX[:, b : b + 1],
            cache.length_B[b : b + 1],
            token_T[None],
            np.arange(start, start + T, dtype=np.int32)[None],
            np.tri(T, dtype=np.bool_)[None],
            np.array([T], np.int32),
        )
        cache.length_B[b] += T
        return result.hidden_YBND[:, 0]

    def _forward(
        self,
        kv_YBSX: Float,
        prefix_len_B: Index,
        token_BN: Index,
        position_BN: Index,
        visible_BNN: Bool,
        node_count_B: Index,
    ) -> Forward:
        """Run the model where its weights are; see `forward`."""
        indices = prefix_len_B, token_BN, position_BN, node_count_B
        prefixes, tokens, positions, counts = (placed(array, self._backend) for array in indices)
        mask = placed(visible_BNN, self._backend)
        result = forward(self._placed, kv_YBSX, prefixes, tokens, positions, mask, counts, self.exact, self._ops)
        return Forward(fetched(result.logit_BNV), fetched(result.hidden_YBND))
