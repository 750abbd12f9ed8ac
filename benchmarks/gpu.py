"""CUDA kernels against peers, on a GPU: python benchmarks/gpu.py [tree attention commit round], all by default.

Needs CuPy and PyTorch. Equality comes first; then tables in Markdown, of microseconds.
"""

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import cupy
import numba
import numpy as np
import torch
from torch_attention import SCALE, C, Inputs, R, compiled, draw, error, peers, truth
from tree_build import marginals

from kdtree import ops
from kdtree.device_round import DeviceRound, capture
from kdtree.kernels.cuda import tree_build, verify_attention
from kdtree.kernels.cuda._device import device
from kdtree.reference.tree_batch import Candidates, TreeBatch
from kdtree.reference.tree_build import best_first
from kdtree.reference.verify_attention import Attended

DEVICE = device()
PEERS = "eager", "cascade", "compile", "SDPA"
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 2**-5}  # of errors; ours is held to that of float32


class Table:
    """A table in Markdown, whose rows are printed as they come."""

    def __init__(self, *names: str) -> None:
        self._widths = [max(8, len(name)) for name in names]
        self.row(*names)
        self.row(*("-" * (width - 1) + ":" for width in self._widths))

    def row(self, *cells: str | int | float) -> None:
        formats = {int: ",", float: ",.1f", str: ""}
        texts = [format(cell, formats[type(cell)]) for cell in cells]
        print("|", " | ".join(map(str.rjust, texts, self._widths)), "|", flush=True)


def ratio(slow: float, fast: float) -> str:
    """Return how many times as long the slow one takes, to print."""
    return f"{slow / fast:.2f}x"


def on_gpu(call: Callable[[], object], seconds: float = 0.3) -> float:
    """Return microseconds of a call by the GPU's clock: the median of five means, launches queued behind each other."""

    def mean(calls: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return 1e3 * cupy.cuda.get_elapsed_time(start, end) / calls

    mean(1)
    calls = max(1, int(1e6 * seconds / 5 / mean(3)))
    return median(mean(calls) for _ in range(5))


def on_clock(call: Callable[[], object], turns: int = 20) -> float:
    """Return the median microseconds of a call by the clock of the CPU; the call waits for what it launches."""
    call()
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start))
    return median(times)


def build(table: Table, budget: int, batch: int) -> None:
    """Compare tree_build, alone on the device and with the copies from and to the CPU."""
    given = marginals(batch, min(budget, 256))
    there = tuple(map(cupy.asarray, given))
    expected, found = ops.tree_build(*given, budget), ops.tree_build.on("cuda")(*there, budget)
    for name, array, other in zip(expected._fields, found, expected, strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(array), other, err_msg=name)
    trees, status_B = TreeBatch(*map(cupy.empty_like, found)), cupy.empty(batch, np.int32)
    candidates = Candidates(*there, budget, 0)
    rows = given[1].tolist()
    alone = on_gpu(lambda: tree_build.launch(DEVICE, candidates, trees, status_B))
    copied = on_clock(lambda: [cupy.asnumpy(a) for a in ops.tree_build.on("cuda")(*map(cupy.asarray, given), budget)])
    on_cpu = on_clock(lambda: ops.tree_build.on("numba")(*given, budget))
    heap = on_clock(lambda: [best_first(row, budget) for row in rows], turns=5)
    table.row(budget, batch, alone, copied, on_cpu, heap, ratio(on_cpu, alone), ratio(heap, alone))


def kernel(inputs: Inputs, visible_BNN: np.ndarray) -> Callable[[], torch.Tensor]:
    """Return the launch of verify_attention, on buffers made before; bfloat16 goes in as its bits."""
    (N, H, _), S = inputs.q_NHX.shape, len(inputs.kv_SX)
    numbers = [inputs.q_NHX[..., :C].contiguous(), inputs.q_NHX[..., C:].contiguous(), inputs.kv_SX]
    if inputs.kv_SX.dtype == torch.bfloat16:
        numbers = [tensor.view(torch.uint16) for tensor in numbers]
    q_latent, q_rope, kv = (cupy.from_dlpack(tensor[None]) for tensor in numbers)
    prefix, visible, count = (cupy.asarray(array) for array in (np.int32([S - N]), visible_BNN, np.int32([N])))
    operands = verify_attention.Operands(q_latent, q_rope, kv, prefix, visible, count)
    attended = Attended(cupy.empty((1, N, H, C), np.float32), cupy.empty((1, N, H), np.float32))
    span, status_B = verify_attention.span_of(S), cupy.empty(1, np.int32)
    parts = verify_attention.empty_parts(DEVICE, attended, S, span)
    latent_NHC = torch.from_dlpack(attended.latent_BNHC)[0]

    def launch() -> torch.Tensor:
        verify_attention.launch(DEVICE, operands, SCALE, parts, attended, status_B, span)
        return latent_NHC

    return launch


def attend(H: int, N: int, P: int, dtype: torch.dtype) -> tuple[dict[str, float], dict[str, float], list[str]]:
    """Return errors, microseconds, and why a peer has none; AssertionError if ours errs."""
    rng = np.random.default_rng(0)
    parent = np.array([[-1, *(int(rng.integers(max(0, i - 8), i)) for i in range(1, N))]], np.int32)
    visible = ops.visibility(parent, np.int32([N]))
    inputs = draw(torch.from_numpy(visible[0]).cuda(), H, P, dtype)
    calls, missing = {"ours": kernel(inputs, visible), **peers(inputs)}, []
    try:
        calls["compile"] = compiled(inputs)
    except Exception as reason:  # there is no Triton, or no C compiler
        missing.append(f"compile: {type(reason).__name__}: {str(reason).strip().partition(chr(10))[0]}")
    expected = truth(inputs)
    errors = {name: error(call(), expected) for name, call in calls.items()}
    assert errors["ours"] <= BOUNDS[torch.float32], f"ours errs by {errors['ours']:.1e} at {H, N, P, dtype}"
    for name in PEERS:
        if name in calls and not errors[name] <= BOUNDS[dtype]:
            missing.append(f"{name}: errs by {errors[name]:.1e} at {H, N, P, dtype}")
            del calls[name]
    return errors, {name: on_gpu(call) for name, call in calls.items()}, missing


def commit(table: Table, batch: int, layers: int) -> None:
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
    table.row(batch, layers, ours, peer, ratio(peer, ours))


def step(table: Table, batch: int, budget: int) -> None:
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
    table.row(batch, budget, launched, replayed, *parts)


def tree() -> None:
    """Compare tree_build with numba's, copies included or not, and with a heap of Python."""
    print("\ntree_build, L = 16, K = min(budget, 256)\n")
    times = "on device", "with copies", "numba", "Python heap"
    table = Table("budget", "batch", *times, "numba / device", "heap / device")
    for budget in (64, 256, 1024):
        for batch in (1, 64):
            build(table, budget, batch)


def attention() -> None:
    """Compare verify_attention with what people write in PyTorch; errors are printed at the end."""
    torch.set_float32_matmul_precision("highest")  # no TF32
    print(f"\nverify_attention, C = {C}, R = {R}, one sequence, against PyTorch without TF32; compile is of eager\n")
    table = Table("dtype", "heads", "slots", "prefix", "ours", "TFLOPS", *PEERS, *(f"{peer} / ours" for peer in PEERS))
    errors, missing = [], []
    for dtype in BOUNDS:
        name = str(dtype).removeprefix("torch.")
        for H, N, P in ((8, 17, 2048), (64, 32, 2048), (8, 65, 32768), (64, 65, 8192), (64, 257, 32768)):
            erred, times, why = attend(H, N, P, dtype)
            flop, ours = 2 * H * N * (P + N) * (2 * C + R), times["ours"]
            ratios = [ratio(times[peer], ours) if peer in times else "-" for peer in PEERS]
            table.row(name, H, N, P, ours, flop / ours / 1e6, *(times.get(peer, "-") for peer in PEERS), *ratios)
            errors.append((name, H, N, P, *(f"{erred[who]:.1e}" if who in erred else "-" for who in ("ours", *PEERS))))
            missing += why
    bounds = f"{BOUNDS[torch.float32]:.0e} for float32 and ours, {BOUNDS[torch.bfloat16]:.0e} for bfloat16"
    print(f"\nlargest errors against float64, as parts of the largest number; bounds: {bounds}\n")
    table = Table("dtype", "heads", "slots", "prefix", "ours", *PEERS)
    for row in errors:
        table.row(*row)
    for line in dict.fromkeys(missing):
        print(f"\n{line}")


def commits() -> None:
    """Compare compaction of all layers at once with layer by layer."""
    print("\ncompact_cache of 8 accepted rows of 576 float32, checks included, against one gather of torch a layer\n")
    table = Table("batch", "layers", "ours", "torch", "torch / ours")
    for batch, layers in ((1, 61), (64, 16)):
        commit(table, batch, layers)


def rounds() -> None:
    """Time a round's launches around the models."""
    print("\na round without the model, V = 151,936, L = 15: 7 kernels and 3 copies\n")
    table = Table("batch", "budget", "launched", "graph", "propose", "accept")
    for batch, budget in ((1, 64), (1, 256), (16, 64)):
        step(table, batch, budget)


def machine() -> str:
    """Return the GPU, its driver, and the versions of what runs."""
    gpu = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    runtime = cupy.cuda.runtime.runtimeGetVersion()
    modules = {"CuPy": cupy, "PyTorch": torch, "numpy": np, "numba": numba}
    versions = ", ".join(f"{name} {module.__version__}" for name, module in modules.items())
    cuda = f"{runtime // 1000}.{runtime % 1000 // 10}"
    return f"{gpu}, driver {driver}, CUDA runtime {cuda}, Python {platform.python_version()}, {versions}"


PARTS = {"tree": tree, "attention": attention, "commit": commits, "round": rounds}


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    for name in chosen:
        if name not in PARTS:
            sys.exit(f"benchmarks/gpu.py: got {name!r}, needs any of {', '.join(PARTS)}")
    print(f"{machine()}; microseconds")
    for name in chosen:
        PARTS[name]()


if __name__ == "__main__":
    main()
