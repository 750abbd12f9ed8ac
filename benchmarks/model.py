"""numba's model ops against numpy's: OPENBLAS_NUM_THREADS=1 python benchmarks/model.py [checkpoint folder].

The kernels run on one core; so should numpy's products, to compare like with like.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from timing import take_turns

import kdtree
from kdtree import ops
from kdtree.loading import load_model
from kdtree.reference.transformer import forward
from kdtree.reference.weights import Weights
from kdtree.target import model_namespace

CHECKPOINT = Path(kdtree.__file__).parent / "data" / "golden" / "hf" / "full"
TREE, PREFIX = 65, 200
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    """Draw a float32 array that keeps the size of what it is applied to."""
    return (RNG.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def mask(N: int) -> np.ndarray:
    """Return who sees whom in a random tree of N slots, shape (1, N, N)."""
    parents = [-1, *(int(RNG.integers(max(0, i - 8), i)) for i in range(1, N))]
    return ops.visibility([parents], [N])


def cases(T: int) -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """Yield (op, sizes, arguments) at sizes of a model of 4 M parameters."""
    for in_size, out_size in ((32, 32), (96, 384), (256, 704), (704, 256), (1024, 1024)):
        yield "linear", f"{in_size} to {out_size}", (normal(T, in_size), normal(out_size, in_size))
    yield "absorb", "8 heads, 32 to 64", (normal(T, 8, 32), normal(8, 32, 64))
    yield "unabsorb", "8 heads, 64 to 32", (normal(T, 8, 64), normal(8, 32, 64))
    expert_TK = np.array([RNG.permutation(8)[:2] for _ in range(T)], np.int32)
    matrices = normal(8, 128, 256), normal(8, 128, 256), normal(8, 256, 128)
    yield "moe", "2 of 8 experts, 256 by 128", (normal(T, 256), expert_TK, np.ones((T, 2), np.float32), *matrices)
    for P in (0, PREFIX, 2000):
        q, kv = normal(1, T, 8, 80) * 9, normal(1, P + T, 80) * 9
        lengths = np.array([P], np.int32), mask(T), np.array([T], np.int32)
        yield "verify_attention", f"8 heads, prefix {P}", (q[..., :64], q[..., 64:], kv, *lengths, 0.14)


def passes(weights: Weights, T: int) -> dict[str, Callable[[], np.ndarray]]:
    """Return passes over one tree of T slots behind a prefix; each returns logits."""
    config = weights.config
    row = config.kv_lora_rank + config.qk_rope_head_dim
    kv_YBSX = normal(config.num_hidden_layers, 1, PREFIX + T, row) * 5
    token_BN = RNG.integers(0, config.vocab_size, (1, T)).astype(np.int32)
    visible_BNN = mask(T)
    position_BN = PREFIX + visible_BNN.sum(axis=2, dtype=np.int32) - 1
    slots = np.array([PREFIX], np.int32), token_BN, position_BN, visible_BNN, np.array([T], np.int32)

    def logits(backend: str, exact: bool) -> np.ndarray:
        return forward(weights, kv_YBSX, *slots, exact, model_namespace(backend)).logit_BNV

    runs = {"numpy": ("numpy", False), "numba": ("numba", False), "numpy exact": ("numpy", True)}
    return {name: partial(logits, *how) for name, how in runs.items()}


def compare(what: str, T: int, contenders: dict[str, Callable[[], object]]) -> None:
    """Check that the contenders agree to rounding, then print how many times as fast numba is."""
    results = {name: call() for name, call in contenders.items()}
    firsts = {name: result[0] if isinstance(result, tuple) else result for name, result in results.items()}
    for name, array in firsts.items():
        truth = firsts["numpy"]
        np.testing.assert_allclose(array, truth, rtol=0, atol=1e-4 * np.abs(truth).max(), err_msg=f"{what}: {name}")
    times = take_turns(contenders, seconds=0.5)
    ratios = [f"{times.ratio(name, 'numba'):8.2f}x" for name in contenders if name != "numba"]
    print(f"{what:46}  {T:4}  {'  '.join(ratios)}")


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINT
    weights = load_model(folder)
    print("times that numba is as fast as numpy; for the model, as numpy in batches and in exact mode")
    print(f"{'op':46}  {'rows':>4}  {'numpy':>9}  {'exact':>9}")
    for T in (1, TREE):
        for name, sizes, arguments in cases(T):
            op = ops.all_ops()[name]
            backends = {backend: partial(op.on(backend), *arguments) for backend in ("numpy", "numba")}
            compare(f"{name}: {sizes}", T, backends)
        compare(f"one pass of {folder.name}, prefix {PREFIX}", T, passes(weights, T))


if __name__ == "__main__":
    main()
