"""A speculative round on a device, but for the model: buffers are made once, and nothing waits or goes to the host."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .kernels.cuda import accept_greedy, argmax, compact_cache, retrieve, top_k, tree_build, visibility
from .kernels.cuda._plan import Array, Device
from .reference.accept_greedy import Acceptance, Walk
from .reference.retrieve import Links
from .reference.top_k import TopK
from .reference.tree_batch import Candidates, TreeBatch

__all__ = ["DeviceRound", "capture"]


class DeviceRound:
    """The launches of a round around the two passes of models.

    `propose` reads `root_token_B` and `draft_logit_BLV` and fills `trees` and `visible_BNN`, for the target to verify;
    `accept` reads `target_logit_BNV` and `prefix_len_B`, fills `accepted`, compacts the cache, and puts the bonus
    tokens and the new lengths where the next round reads them. Both only launch, so a CUDA graph can hold either.

    Parameters
    ----------
    device : Device
        `kdtree.kernels.cuda._device.device()`, or the host's.
    kv_YBSX : float, shape (Y, B, S, X)
        Cache of the target, an array of the device.
    draft_len, vocab_size, ranks, budget : int
        L, V, K and the nodes of a tree below its root.

    Raises
    ------
    ValueError
        `failed` after a round: which launch refused its input.

    Invariants
    ----------
    - a round equals the truth's ops one by one (test_a_round_on_a_device_equals_the_ops_of_the_truth)
    - a captured round too (test_a_captured_round_equals_the_ops_of_the_truth)
    """

    def __init__(
        self, device: Device, kv_YBSX: Array, *, draft_len: int, vocab_size: int, ranks: int, budget: int
    ) -> None:
        B, L, V, K, N = kv_YBSX.shape[1], draft_len, vocab_size, min(ranks, vocab_size), budget + 1

        def ints(*shape: int) -> Array:
            return device.empty(shape, np.int32)

        dtype = np.dtype(kv_YBSX.dtype)
        self._device, self.kv_YBSX = device, kv_YBSX
        self.root_token_B, self.prefix_len_B = ints(B), ints(B)
        self.draft_logit_BLV = device.empty((B, L, V), dtype)
        self.target_logit_BNV = device.empty((B, N, V), dtype)
        self.best = TopK(device.empty((B, L, K), dtype), ints(B, L, K))
        logw_BN = device.empty((B, N), np.float64)
        self.trees = TreeBatch(ints(B, N), ints(B, N), ints(B, N), ints(B, N), logw_BN, ints(B))
        self.visible_BNN = device.empty((B, N, N), np.bool_)
        self.links = Links(ints(B, N), ints(B, N))
        self.target_token_BN = ints(B, N)
        self.accepted = Acceptance(ints(B, N), ints(B), ints(B))
        self._length_B = ints(B)
        self._given = Candidates(self.root_token_B, *self.best, budget, 0)
        sizes = {"top_k": B * L, "argmax": B * N}
        ops = "top_k", "tree_build", "visibility", "retrieve", "argmax", "accept_greedy", "compact_cache"
        self._status = {op: ints(sizes.get(op, B)) for op in ops}

    def propose(self) -> None:
        """Build the trees of the drafter's logits, their masks and their links."""
        device, trees, status = self._device, self.trees, self._status
        V, K = self.draft_logit_BLV.shape[2], self.best.token_TK.shape[2]
        rows = TopK(self.best.logprob_TK.reshape(-1, K), self.best.token_TK.reshape(-1, K))
        top_k.launch(device, self.draft_logit_BLV.reshape(-1, V), rows, status["top_k"])
        tree_build.launch(device, self._given, trees, status["tree_build"])
        visibility.launch(device, trees.parent_BN, trees.node_count_B, self.visible_BNN, status["visibility"])
        retrieve.launch(device, trees.parent_BN, trees.node_count_B, self.links, status["retrieve"])

    def accept(self) -> None:
        """Walk the trees along the target's best tokens, and commit what was accepted."""
        device, trees, status = self._device, self.trees, self._status
        logit_TV = self.target_logit_BNV.reshape(-1, self.target_logit_BNV.shape[2])
        argmax.launch(device, logit_TV, self.target_token_BN.reshape(-1), status["argmax"])
        walk = Walk(trees.token_BN, *self.links, trees.node_count_B, self.target_token_BN)
        accept_greedy.launch(device, walk, self.accepted, status["accept_greedy"])
        path_BN, accept_len_B, bonus_B = self.accepted
        compact_cache.launch(
            device, self.kv_YBSX, self.prefix_len_B, path_BN, accept_len_B, self._length_B, status["compact_cache"]
        )
        self.prefix_len_B[...] = self._length_B
        self.root_token_B[...] = bonus_B

    def failed(self) -> list[str]:
        """Return the ops that refused their input in the last round; waits for the device."""
        return [op for op, status in self._status.items() if self._device.numpy(status).any()]


def capture(launches: Callable[[], None]) -> Any:
    """Return a CUDA graph of what a function launches, as CuPy has it; `launch()` runs it on the current stream.

    The function is run once before, behind what the current stream does, to compile what it launches.
    """
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    stream.wait_event(cupy.cuda.get_current_stream().record())  # of what fills the buffers
    with stream:
        launches()
        stream.synchronize()
        stream.begin_capture()
        launches()
        return stream.end_capture()
