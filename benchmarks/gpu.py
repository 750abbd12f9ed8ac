"""CUDA kernels against peers, on a GPU: python benchmarks/gpu.py. Needs CuPy and PyTorch; equality comes first."""

import time
from collections.abc import Callable
from statistics import median

import cupy
import numpy as np
import torch
from tree_build import marginals

from kdtree import ops
from kdtree.device_round import DeviceRound, capture
from kdtree.kernels.cuda import tree_build, verify_attention
from kdtree.kernels.cuda._device import device
from kdtree.reference.tree_batch import Candidates, TreeBatch
from kdtree.reference.tree_build import best_first
from kdtree.reference.verify_attention import Attended

DEVICE = device()


def on_gpu(call: Callable[[], object], seconds: float = 0.3) -> float:
    """Return microseconds of a call by the GPU's clock: the median of five means, launches queued behind each other."""
    for _ in range(3):
        call()
    times = []
    for _ in range(5):
        start, end, calls = cupy.cuda.Event(), cupy.cuda.Event(), 0
        stop = time.perf_counter() + seconds / 5
        start.record()
        while time.perf_counter() < stop:
            call()
            calls += 1
            if calls % 50 == 0:
                cupy.cuda.Device().synchronize()
        end.record()
        end.synchronize()
        times.append(1e3 * cupy.cuda.get_elapsed_time(start, end) / calls)
    return median(times)


def on_clock(call: Callable[[], object], turns: int = 20) -> float:
    """Return the median microseconds of a call by the clock of the CPU; the call waits for what it launches."""
    call()
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start))
    return median(times)


def build(budget: int, batch: int) -> None:
    """Compare tree_build, alone on the device and with the copies from and to the CPU."""
    given = marginals(batch, min(budget, 256))
    there = tuple(map(cupy.asarray, given))
    truth, found = ops.tree_build(*given, budget), ops.tree_build.on("cuda")(*there, budget)
    for name, array, other in zip(truth._fields, found, truth, strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(array), other, err_msg=name)
    trees, status_B = TreeBatch(*map(cupy.empty_like, found)), cupy.empty(batch, np.int32)
    candidates = Candidates(*there, budget, 0)
    rows = given[1].tolist()
    alone = on_gpu(lambda: tree_build.launch(DEVICE, candidates, trees, status_B))
    copied = on_clock(lambda: [cupy.asnumpy(a) for a in ops.tree_build.on("cuda")(*map(cupy.asarray, given), budget)])
    numba = on_clock(lambda: ops.tree_build.on("numba")(*given, budget))
    heap = on_clock(lambda: [best_first(row, budget) for row in rows], turns=5)
    print(f"{budget:6}  {batch:5}  {alone:9.1f}  {copied:11.1f}  {numba:9.1f}  {heap:11.1f}  {heap / alone:8.1f}x")


def attend(H: int, N: int, P: int) -> None:
    """Compare verify_attention in float32 with torch: scores in memory, and SDPA with a mask."""
    rng = np.random.default_rng(0)
    C, R, S = 512, 64, P + N
    shapes = (1, N, H, C), (1, N, H, R), (1, S, C + R)
    q_latent, q_rope, kv = (cupy.asarray(rng.normal(size=shape).astype(np.float32)) for shape in shapes)
    parent = np.array([[-1, *(int(rng.integers(max(0, i - 8), i)) for i in range(1, N))]], np.int32)
    visible = cupy.asarray(ops.visibility(parent, np.int32([N])))
    counts = cupy.asarray(np.int32([P])), cupy.asarray(np.int32([N]))
    scale = (128 + R) ** -0.5
    operands = verify_attention.Operands(q_latent, q_rope, kv, counts[0], visible, counts[1])
    attended = Attended(cupy.empty((1, N, H, C), np.float32), cupy.empty((1, N, H), np.float32))
    span, status_B = verify_attention.span_of(S), cupy.empty(1, np.int32)
    parts = verify_attention.empty_parts(DEVICE, attended, S, span)

    def ours() -> None:
        verify_attention.launch(DEVICE, operands, scale, parts, attended, status_B, span)

    q = torch.cat([torch.from_dlpack(q_latent), torch.from_dlpack(q_rope)], dim=3)[0].transpose(0, 1)  # H, N, X
    keys = torch.from_dlpack(kv)[0]
    mask = torch.cat([torch.ones(N, P, dtype=torch.bool, device="cuda"), torch.from_dlpack(visible)[0]], dim=1)

    def eager() -> torch.Tensor:
        score = (q @ keys.T * scale).masked_fill(~mask, -torch.inf)
        return score.softmax(dim=-1) @ keys[:, :C]

    def sdpa() -> torch.Tensor:
        value = keys[:, :C].expand(H, -1, -1)
        return torch.nn.functional.scaled_dot_product_attention(q, keys.expand(H, -1, -1), value, mask, scale=scale)

    ours()
    np.testing.assert_allclose(cupy.asnumpy(attended.latent_BNHC[0]), eager().transpose(0, 1).cpu(), atol=2e-4)
    times = on_gpu(ours), on_gpu(eager), on_gpu(sdpa)
    flop = 2 * H * N * S * (2 * C + R)
    ratios = "  ".join(f"{peer / times[0]:6.2f}x" for peer in times[1:])
    print(
        f"{H:5}  {N:5}  {P:6}  " + "  ".join(f"{t:9.1f}" for t in times) + f"  {flop / times[0] / 1e6:8.2f}  {ratios}"
    )


def commit(batch: int, layers: int) -> None:
    """Compare compaction of all layers in one launch with a gather of torch a layer."""
    rng, N, S, X = np.random.default_rng(0), 65, 2048, 576
    kv = cupy.random.default_rng(0).standard_normal((layers, batch, S, X), np.float32)
    path = np.full((batch, N), -1, np.int32)
    path[:, :8] = np.sort(rng.permuted(np.tile(np.arange(1, N), (batch, 1)), axis=1)[:, :8], axis=1)
    path[:, 0] = 0
    prefix, lengths = np.full(batch, 1900, np.int32), np.full(batch, 8, np.int32)
    there = [cupy.asarray(array) for array in (prefix, path, lengths)]
    compacted = kv.copy()
    ops.compact_cache.on("cuda")(compacted, *there)
    expected = cupy.asnumpy(kv[:2])
    ops.compact_cache(expected, prefix, path, lengths)
    np.testing.assert_array_equal(cupy.asnumpy(compacted[:2]), expected)
    planes = [torch.from_dlpack(layer) for layer in kv]
    rows_B8 = torch.from_dlpack(there[1])[:, :8].long() + 1900
    each_B1 = torch.arange(batch, device="cuda")[:, None]

    def gathers() -> None:
        for plane in planes:
            plane[:, 1900:1908] = plane[each_B1, rows_B8]

    ours = on_gpu(lambda: ops.compact_cache.on("cuda")(kv, *there))
    peer = on_gpu(gathers)
    print(f"{batch:5}  {layers:6}  {ours:9.1f}  {peer:9.1f}  {peer / ours:6.1f}x")


def step(batch: int, budget: int) -> None:
    """Time a round without the model, launched from Python and as a graph."""
    L, V, K = 15, 151_936, min(budget, 64)
    kv = cupy.zeros((36, batch, 4096, 64), np.float32)
    whole = DeviceRound(DEVICE, kv, draft_len=L, vocab_size=V, ranks=K, budget=budget)
    whole.draft_logit_BLV[...] = 3 * cupy.random.default_rng(0).standard_normal((batch, L, V), np.float32)
    whole.target_logit_BNV[...] = 0
    whole.root_token_B[...], whole.prefix_len_B[...] = 0, 64

    def accept() -> None:
        whole.prefix_len_B[...] = 64  # or the cache would be full after some rounds
        whole.accept()

    def both() -> None:
        whole.propose()
        accept()

    launched, replayed = on_gpu(both), on_gpu(capture(both).launch)
    parts = [on_gpu(capture(half).launch) for half in (whole.propose, accept)]
    assert whole.failed() == []
    print(f"{batch:5}  {budget:6}  {launched:9.1f}  {replayed:9.1f}  {parts[0]:9.1f}  {parts[1]:9.1f}")


def main() -> None:
    """Print the tables."""
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{name}; microseconds\n\ntree_build, L = 16, K = min(budget, 256)")
    print("budget  batch  on device  with copies      numba  Python heap  heap / device")
    for budget in (64, 256, 1024):
        for batch in (1, 64):
            build(budget, batch)
    print("\nverify_attention, float32, C = 512, R = 64, one sequence; TFLOPS, and times that ours is faster")
    print("heads  slots  prefix       ours      eager       SDPA    TFLOPS    eager     SDPA")
    for H, N, P in ((8, 17, 2048), (64, 32, 2048), (8, 65, 32768), (64, 65, 8192)):
        attend(H, N, P)
    print("\ncompact_cache of 8 accepted rows of 576 float32, checks included, against one gather of torch a layer")
    print("batch  layers       ours      torch   ratio")
    for batch, layers in ((1, 61), (64, 16)):
        commit(batch, layers)
    print("\na round without the model, V = 151,936, L = 15: 7 kernels and 3 copies")
    print("batch  budget   launched      graph    propose     accept")
    for batch, budget in ((1, 64), (1, 256), (16, 64)):
        step(batch, budget)


if __name__ == "__main__":
    main()
