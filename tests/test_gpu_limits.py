"""Where a GPU has limits: shared memory on both sides of 48 KiB, and arrays of more than 2^31 elements."""

import numpy as np
import pytest

from kdtree import ops
from kdtree.kernels.cuda._device import CudaDevice

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")

THREADS = 256
REVERSE_SUMS = """
extern "C" __global__ void kernel(int* out_T) {
  extern __shared__ unsigned char bytes[];
  for (int i = threadIdx.x; i < BYTES; i += blockDim.x) bytes[i] = i % 251;
  __syncthreads();
  int sum = 0;
  for (int i = threadIdx.x; i < BYTES; i += blockDim.x) sum += bytes[BYTES - 1 - i] * (i % 7);
  out_T[threadIdx.x] = sum;
}
"""


@pytest.fixture(autouse=True)
def memory_is_given_back():
    yield
    cupy.get_default_memory_pool().free_all_blocks()


def needs_memory(size):
    free, _ = cupy.cuda.Device().mem_info
    if free < size:
        pytest.skip(f"got {free >> 20} MiB free on the GPU, needs {size >> 20}")


def reverse_sums(device, size):
    """Run the kernel with so many bytes of shared memory, compiled for them alone."""
    out_T = cupy.full(THREADS, -1, np.int32)
    device.launch("none", "kernel", 1, THREADS, [out_T], shared_bytes=size, BYTES=size)
    return cupy.asnumpy(out_T)


def expected_sums(size):
    i, terms = np.arange(size), np.zeros(-(-size // THREADS) * THREADS, np.int64)
    terms[:size] = (i % 251)[::-1] * (i % 7)
    return terms.reshape(-1, THREADS).sum(axis=0)


@pytest.mark.parametrize("size", [1, 49151, 49152, 49153, 65536, 101376, None])
def test_shared_memory_on_both_sides_of_48_kib_and_up_to_the_limit_of_the_device_is_there(size):
    device = CudaDevice({"none": REVERSE_SUMS})
    size = size or device.shared_limit
    np.testing.assert_array_equal(reverse_sums(device, size), expected_sums(size))


def test_less_shared_memory_after_more_and_more_after_less_is_there():
    text = REVERSE_SUMS.replace("int* out_T", "int* out_T, int bytes_now").replace("BYTES", "bytes_now")
    for size in (60_000, 1000, 60_000, 90_000, 49_152):
        out_T = cupy.full(THREADS, -1, np.int32)
        device = CudaDevice({"none": text})  # the kernel is one
        device.launch("none", "kernel", 1, THREADS, [out_T, np.int32(size)], shared_bytes=size)
        np.testing.assert_array_equal(cupy.asnumpy(out_T), expected_sums(size))


def test_more_shared_memory_than_the_device_has_is_refused_with_need_and_limit():
    device = CudaDevice({"none": REVERSE_SUMS})
    limit = device.shared_limit
    with pytest.raises(ValueError, match=f"kernel: needs {limit + 1} B of shared memory, got a limit of {limit} B"):
        reverse_sums(device, limit + 1)


@pytest.mark.parametrize(("S", "row"), [(3_728_271, -1), (3_728_400, -2)], ids=["slot", "prefix"])
def test_attention_reads_the_row_whose_elements_lie_past_2_to_31(S, row):
    """Its score is 576 and all others are 0, so float32 gives it all the weight: exp(-576) is 0."""
    C, R = 512, 64
    assert S * (C + R) > 2**31
    needs_memory(5 << 30)
    kv_BSX = cupy.zeros((1, S, C + R), np.float16)
    kv_BSX[0, row] = 1
    queries = cupy.ones((1, 1, 1, C), np.float16), cupy.ones((1, 1, 1, R), np.float16)
    prefix_len_B, node_count_B = cupy.asarray([S - 1], np.int32), cupy.ones(1, np.int32)
    visible_BNN = cupy.ones((1, 1, 1), np.bool_)
    attended = ops.verify_attention.on("cuda")(*queries, kv_BSX, prefix_len_B, visible_BNN, node_count_B, 1.0)
    assert (attended.latent_BNHC == 1).all()
    assert attended.lse_BNH.item() == C + R


@pytest.mark.parametrize("X", [575, 576])  # moved by the byte, and by 16
def test_compaction_moves_the_rows_of_a_sequence_that_lies_past_2_to_31(X):
    B, N = 35, 8
    S = 2**31 // ((B - 1) * X) + 100
    needs_memory(5 << 30)
    kv_YBSX = cupy.zeros((1, B, S, X), np.uint8)
    before = (np.arange(N * X) % 251 + 1).astype(np.uint8).reshape(1, 1, N, X)
    kv_YBSX[:, -1:, S - N :] = cupy.asarray(before)
    path_BN, accept_len_B = np.full((B, N), -1, np.int32), np.ones(B, np.int32)
    path_BN[:, 0] = 0
    path_BN[-1, :4], accept_len_B[-1] = [0, 3, 5, 7], 4
    paths = cupy.full(B, S - N, np.int32), cupy.asarray(path_BN), cupy.asarray(accept_len_B)
    length_B = ops.compact_cache.on("cuda")(kv_YBSX, *paths)
    expected = before.copy()
    ops.compact_cache(expected, np.zeros(1, np.int32), path_BN[-1:], accept_len_B[-1:])
    assert length_B.tolist() == [S - N + 1] * (B - 1) + [S - N + 4]
    np.testing.assert_array_equal(cupy.asnumpy(kv_YBSX[:, -1:, S - N :]), expected)
    kv_YBSX[:, -1:, S - N :] = 0
    assert not kv_YBSX.any()


def test_the_best_tokens_of_a_row_of_logits_past_2_to_31_are_found():
    T, V = 2**11 + 1, 2**20
    needs_memory(12 << 30)
    logit_TV = cupy.zeros((T, V), np.float32)
    logit_TV[:] = cupy.arange(V, dtype=np.float32) / -V
    best = [V - 1, 0x54321, 7]
    logit_TV[-1, cupy.asarray(best)] = cupy.asarray([3, 2, 1], np.float32)
    token_T = ops.argmax.on("cuda")(logit_TV)
    assert token_T[-1] == V - 1
    assert not token_T[:-1].any()
    token_TK = ops.top_k.on("cuda")(logit_TV, 3).token_TK
    assert token_TK[-1].tolist() == best
    assert (token_TK[:-1] == cupy.arange(3)).all()
