"""Arrays of other libraries on a GPU: in without a copy, out through DLPack, on the caller's stream."""

import numpy as np
import pytest

from kdtree import ops

pytestmark = pytest.mark.gpu
cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")

PARENTS = [[-1, 0, 0, 1, 1], [-1, 0, 1, 2, 3]]


def test_torch_tensors_go_in_and_come_out():
    parents, counts = torch.tensor(PARENTS, dtype=torch.int32).cuda(), torch.tensor([5, 4], dtype=torch.int32).cuda()
    links = ops.retrieve.on("cuda")(parents, counts)
    expected = ops.retrieve(PARENTS, [5, 4])
    for array, other in zip(links, expected, strict=True):
        tensor = torch.from_dlpack(array)
        assert tensor.data_ptr() == array.data.ptr
        np.testing.assert_array_equal(tensor.cpu().numpy(), other)


def test_an_array_of_a_gpu_is_not_copied():
    from kdtree.kernels.cuda._device import device

    tensor = torch.arange(6, dtype=torch.float32).cuda().reshape(2, 3)
    assert device().floats("x_TD", tensor).data.ptr == tensor.data_ptr()
    strided = device().floats("x_TD", tensor.T)
    np.testing.assert_array_equal(cupy.asnumpy(strided), tensor.T.cpu().numpy())


def test_an_array_in_the_memory_of_the_cpu_is_refused():
    with pytest.raises(TypeError, match="parent_BN: got ndarray, needs an array on a GPU"):
        ops.visibility.on("cuda")(np.array(PARENTS), np.array([5, 4]))


def test_kernels_wait_for_what_the_callers_stream_did_before():
    side = torch.cuda.Stream()
    for turn in range(50):
        with torch.cuda.stream(side), cupy.cuda.ExternalStream(side.cuda_stream):
            logits = torch.zeros(64, 4096, device="cuda")
            for _ in range(20):
                logits = logits + torch.randn_like(logits) * 0
            logits[:, turn] = 1.0
            tokens = ops.argmax.on("cuda")(logits)
        side.synchronize()
        assert (tokens == turn).all()
