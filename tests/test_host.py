"""Kernels on the CPU: barriers are real, orders are permuted, memory is poisoned, the cache is shared."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from kdtree.kernels.cuda import _cache, _source
from kdtree.kernels.host import _device
from kdtree.kernels.host._device import HostDevice, KernelFault

ANY_KERNEL = 'extern "C" __global__ void kernel(int* out_T) {{ {} }}'


def run(body, block=64, seed=0, shared_bytes=0, arguments=None):
    """Run one block of a kernel of this body and return its output."""
    out_T = np.full(block, -1, np.int32)
    device = HostDevice(seed, sources={"none": ANY_KERNEL.format(body)})
    device.launch("none", "kernel", 1, block, [out_T] if arguments is None else arguments, shared_bytes=shared_bytes)
    return out_T


NEIGHBOUR = "__shared__ int s[64]; s[threadIdx.x] = threadIdx.x; {} out_T[threadIdx.x] = s[(threadIdx.x + 1) % 64];"


def test_a_missing_barrier_is_found_by_every_seed_and_a_present_one_by_none():
    expected = (np.arange(64) + 1) % 64
    for seed in range(8):
        assert (run(NEIGHBOUR.format("__syncthreads();"), seed=seed) == expected).all()
        assert (run(NEIGHBOUR.format(""), seed=seed) != expected).any()


def test_a_missing_barrier_that_the_plain_order_hides_is_found_by_a_seed():
    body = "__shared__ int s; if (threadIdx.x == 0) s = 7; out_T[threadIdx.x] = s;"
    assert (run(body) == 7).all()
    assert all((run(body, seed=seed) != 7).any() for seed in range(1, 9))


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("if (threadIdx.x < 40) __syncthreads(); else __syncwarp();", "deadlock: thread 0 waits at line 1, thread 40"),
        ("if (threadIdx.x == 3)\n__syncthreads();\nelse\n__syncthreads();", "0 waits at line 4, thread 3 at line 2"),
        ("if (threadIdx.x % 32 != 5) __syncwarp(); __syncthreads();", "deadlock"),
        ("__syncwarp(2);", "lane 0 is not in its own mask 00000002"),
        ("int x = 0; if (threadIdx.x % 2) x = __shfl_sync(0xaaaaaaaa, 1, 0); out_T[0] = x;", "reads lane 0"),
        ("if (threadIdx.x % 2) __syncwarp(); else out_T[0] = __any_sync(~0u, 1);", "different warp functions"),
    ],
)
def test_a_barrier_that_not_all_reach_is_an_error(body, fault):
    with pytest.raises(KernelFault, match=f"kernel: .*{fault}"):
        run(body)


def test_threads_that_have_ended_are_waited_for_by_nobody():
    body = "if (threadIdx.x >= 40) return; __syncthreads(); out_T[threadIdx.x] = __ballot_sync(~0u, 1);"
    assert run(body).tolist() == [-1] * 32 + [255] * 8 + [-1] * 24


LANE = np.arange(64) % 32
WARP_FUNCTIONS = {
    "__shfl_sync(~0u, lane, 5)": 5 + 0 * LANE,
    "__shfl_sync(~0u, lane, 1, 8)": LANE // 8 * 8 + 1,
    "__shfl_up_sync(~0u, lane, 3)": np.where(LANE >= 3, LANE - 3, LANE),
    "__shfl_down_sync(~0u, lane, 3, 16)": np.where(LANE % 16 < 13, LANE + 3, LANE),
    "__shfl_xor_sync(~0u, lane, 9)": LANE ^ 9,
    "(int)__shfl_xor_sync(~0u, lane + 0.5, 1)": LANE ^ 1,
    "__reduce_add_sync(~0u, lane - 20)": 0 * LANE - 144,
    "__reduce_min_sync(~0u, lane - 20)": 0 * LANE - 20,
    "__reduce_max_sync(~0u, (unsigned)lane)": 0 * LANE + 31,
    "__reduce_or_sync(~0u, lane)": 0 * LANE + 31,
    "(int)__ballot_sync(~0u, lane < 4)": 0 * LANE + 15,
    "__any_sync(~0u, lane == 7) + 2 * __all_sync(~0u, lane != 7)": 0 * LANE + 1,
    "__syncthreads_or(threadIdx.x == 63)": 0 * LANE + 1,
    "min(lane, 3) + __popcll(255ull) + __ffs(8) + __clz(1)": np.minimum(LANE, 3) + 8 + 4 + 31,
}


def test_warp_functions_do_what_cuda_says():
    lines = [f"out_T[{64 * k} + threadIdx.x] = {function};" for k, function in enumerate(WARP_FUNCTIONS)]
    got = np.zeros((len(lines), 64), np.int32)
    run("\n".join(["const int lane = threadIdx.x % 32;", *lines]), seed=3, arguments=[got])
    for row, (function, expected) in zip(got, WARP_FUNCTIONS.items(), strict=True):
        assert row.tolist() == expected.tolist(), function


def test_atomics_give_the_old_value_and_leave_the_new_one():
    body = "__shared__ int s; if (threadIdx.x == 0) s = 0; __syncthreads(); out_T[atomicAdd(&s, 1)] = threadIdx.x;"
    assert sorted(run(body, seed=1)) == list(range(64))
    body = "if (threadIdx.x) return; float x = 1; atomicAdd(&x, 2); out_T[1] = x; out_T[0] = atomicCAS(out_T, -1, 4);"
    assert run(body)[:2].tolist() == [-1, 3]


def test_shared_memory_starts_poisoned():
    body = "__shared__ int s[64]; extern __shared__ int d[]; out_T[threadIdx.x] = s[threadIdx.x] & d[threadIdx.x];"
    assert (run(body, shared_bytes=256).view(np.uint32) == 0xA5A5A5A5).all()


def test_an_argument_of_another_type_is_refused():
    right = np.zeros(64, np.int32)
    read_only = right.copy()
    read_only.flags.writeable = False
    for wrong in (np.zeros(64, np.int64), np.zeros(64, np.float32), right[::2], np.int32(1), read_only, None):
        with pytest.raises(TypeError, match=r"kernel: got .* as argument 0, needs int32\*"):
            run("out_T[0] = 1;", arguments=[wrong])
    for number in (1, 1.0, True):
        with pytest.raises(TypeError, match="needs a numpy scalar"):
            run("out_T[0] = 1;", arguments=[number])
    with pytest.raises(TypeError, match="got 2 arguments, needs 1"):
        run("out_T[0] = 1;", arguments=[right, right])


@pytest.mark.parametrize("shared_bytes", [49151, 49152, 49153, 65536, _source.SHARED_LIMIT])
def test_shared_memory_up_to_the_limit_of_the_target_is_there(shared_bytes):
    body = f"extern __shared__ unsigned char d[]; d[{shared_bytes - 1}] = 3; out_T[0] = d[{shared_bytes - 1}];"
    assert run(body, shared_bytes=shared_bytes)[0] == 3


def test_more_shared_memory_is_refused_with_need_and_limit():
    with pytest.raises(ValueError, match="needs 101377 B of shared memory, got a limit of 101376 B"):
        run("out_T[0] = 1;", shared_bytes=_source.SHARED_LIMIT + 1)


def test_a_kernel_that_does_not_compile_says_so_in_the_words_of_the_compiler():
    with pytest.raises(RuntimeError, match="g\\+\\+ refuses the kernel"):
        run("out_T[0] = nothing;")


def test_a_warning_is_an_error_in_every_test():
    warned = _device.device({"none": ANY_KERNEL.format("int unused; out_T[0] = 1;")})
    with pytest.raises(RuntimeError, match="unused variable"):
        warned.launch("none", "kernel", 1, 1, [np.zeros(1, np.int32)])


WORK = "from kdtree import ops; print(ops.retrieve.on('host')([[-1, 0, 0, 1]], [4]).first_child_BN.tolist())"


def test_processes_that_fill_one_empty_cache_at_once_all_get_the_right_answer(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", WORK]
    started = [subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate(timeout=300)[0] for process in started] == ["[[1, 3, -1, -1]]\n"] * 4
    assert [path.suffix for path in (tmp_path / "kdtree" / "host").iterdir()] == [".so"]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "kdtree").write_text("a file where the folder would be")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WORK], env=environment, text=True, capture_output=True, timeout=300)
    assert done.stdout == "[[1, 3, -1, -1]]\n"


def test_a_cache_of_a_user_without_a_home_is_done_without(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", mock.Mock(side_effect=RuntimeError("no home")))
    folder = _cache.folder.__wrapped__("host")
    folder.rmdir()  # it was there, and empty


def test_what_could_not_be_made_leaves_no_file_and_what_was_made_is_kept(monkeypatch, tmp_path):
    def fails(path):
        path.write_text("half")
        raise RuntimeError("refused")

    monkeypatch.setattr(_cache, "folder", lambda kind: tmp_path)
    with pytest.raises(RuntimeError, match="refused"):
        _cache.kept("host", ".so", ["text", "option"], fails)
    assert list(tmp_path.iterdir()) == []
    assert _cache.kept("host", ".so", ["text", "option"], lambda path: path.write_text("whole")).read_text() == "whole"
    assert _cache.kept("host", ".so", ["text", "option"], fails).read_text() == "whole"


SANITIZED = """
import numpy as np
from kdtree import ops
from kdtree.kernels.host._device import device
{}
print("ended")
"""


def sanitized(code, *sanitizers):
    """Run code with kernels under sanitizers."""
    library = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    environment = {
        **os.environ,
        "LD_PRELOAD": str(Path(library.strip()).resolve()),
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "KDTREE_HOST_FLAGS": "-fsanitize=address,undefined -fno-sanitize-recover=all -g -O1",
    }
    script = SANITIZED.format(code)
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)


def test_the_sanitizer_passes_good_kernels_with_barriers():
    good = """
links = ops.retrieve.on("host")([[-1, 0, 0, 1]] * 3, [4, 3, 1])
ops.visibility_intervals.on("host")([[-1, 0, 0, 1]] * 3, [4, 3, 1])
ops.accept_greedy.on("host")([[7, 10, 11, 20]], [[1, 3, -1, -1]], [[-1, 2, -1, -1]], [4], [[10, 20, 0, 5]])
"""
    done = sanitized(good)
    assert done.stdout == "ended\n", done.stderr


@pytest.mark.parametrize(
    ("body", "report"),
    [
        ("__syncthreads(); out_T[threadIdx.x + 1] = 1;", "heap-buffer-overflow"),
        (
            "extern __shared__ int d[]; __syncthreads(); d[threadIdx.x + 128] = 1; out_T[0] = d[0];",
            "heap-buffer-overflow",
        ),
        ("out_T[0] = 1 << (threadIdx.x + 31);", "shift exponent"),
    ],
)
def test_the_sanitizer_finds_a_planted_fault(body, report):
    code = f"""
planted = device({{"none": {ANY_KERNEL.format(body)!r}}})
planted.launch("none", "kernel", 1, 64, [np.zeros(64, np.int32)], shared_bytes=512)
"""
    done = sanitized(code)
    assert "ended" not in done.stdout
    assert report in done.stderr
