"""Arrays of other libraries on a GPU: in without a copy, out through DLPack, read when they are written."""

import os

import numpy as np
import pytest

from kdtree import ops

pytestmark = pytest.mark.gpu
cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")

PARENTS = [[-1, 0, 0, 1, 1], [-1, 0, 1, 2, 3]]
TURNS = 200
CYCLES = 1_000_000  # of the GPU's clock, half a millisecond: what is launched meanwhile must wait


@pytest.fixture(scope="module")
def jax():
    """Return jax, if it has a GPU."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # or it takes most of the memory
    module = pytest.importorskip("jax")
    try:
        module.devices("gpu")
    except RuntimeError as error:
        pytest.skip(f"jax has no GPU: {error}")
    return module


@pytest.fixture
def device():
    from kdtree.kernels.cuda._device import device

    return device()


@pytest.fixture(params=["default", "side"])
def reader(request):
    """Return a stream of CuPy that kernels run on; the side stream does not wait for the default one."""
    return cupy.cuda.Stream.null if request.param == "default" else cupy.cuda.Stream(non_blocking=True)


def in_torch(stream):
    """Let a stream of CuPy be torch's current one while the context lasts."""
    return torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr))


def zeros(*shape):
    """Return zeros that streams may use which do not wait for the default one."""
    tensor = torch.zeros(shape, device="cuda")
    torch.cuda.synchronize()
    return tensor


def write_late(tensor, turn):
    """Put the only 1 of each row in column `turn`, on torch's current stream and long after this returns."""
    torch.cuda._sleep(CYCLES)
    tensor.zero_()
    tensor[:, turn].fill_(1)


def assert_read(logits, turn):
    """Run an op at once, and see that it read what this turn wrote; waits for it."""
    np.testing.assert_array_equal(cupy.asnumpy(ops.argmax.on("cuda")(logits)), turn)


def test_torch_tensors_go_in_and_come_out():
    parents, counts = torch.tensor(PARENTS, dtype=torch.int32).cuda(), torch.tensor([5, 4], dtype=torch.int32).cuda()
    links = ops.retrieve.on("cuda")(parents, counts)
    expected = ops.retrieve(PARENTS, [5, 4])
    for array, other in zip(links, expected, strict=True):
        tensor = torch.from_dlpack(array)
        assert tensor.data_ptr() == array.data.ptr
        np.testing.assert_array_equal(tensor.cpu().numpy(), other)


def test_arrays_of_jax_go_in_and_come_out(jax):
    parents, counts = jax.numpy.array(PARENTS, "int32"), jax.numpy.array([5, 4], "int32")
    links = ops.retrieve.on("cuda")(parents, counts)
    expected = ops.retrieve(PARENTS, [5, 4])
    for array, other in zip(links, expected, strict=True):
        of_jax = jax.numpy.from_dlpack(array)
        assert of_jax.unsafe_buffer_pointer() == array.data.ptr
        np.testing.assert_array_equal(np.asarray(of_jax), other)


def test_an_array_of_a_gpu_is_not_copied(device):
    tensor = torch.arange(6, dtype=torch.float32).cuda().reshape(2, 3)
    assert device.floats("x_TD", tensor).data.ptr == tensor.data_ptr()
    strided = device.floats("x_TD", tensor.T)
    np.testing.assert_array_equal(cupy.asnumpy(strided), tensor.T.cpu().numpy())


@pytest.mark.parametrize(("kind", "dtype"), [("integers", "int32"), ("floats", "float32"), ("bools", "bool")])
def test_an_array_of_jax_is_not_copied(jax, device, kind, dtype):
    array = jax.numpy.array([[0, 1, 1], [1, 0, 1]], dtype)
    taken = getattr(device, kind)("x_TD", array)
    assert taken.data.ptr == array.unsafe_buffer_pointer()
    np.testing.assert_array_equal(cupy.asnumpy(taken), np.asarray(array))


def test_a_bfloat16_tensor_goes_in_as_its_bits(device):
    tensor = torch.randn(3, 5).cuda().to(torch.bfloat16)
    bits = device.array("kv_BSX", tensor.view(torch.uint16))
    assert (bits.dtype, bits.data.ptr) == (np.uint16, tensor.data_ptr())


CPU_ARRAYS = {
    "ndarray": lambda array: array,
    "Tensor": torch.from_numpy,
    "pinned Tensor": lambda array: torch.from_numpy(array).pin_memory(),
}


@pytest.mark.parametrize("kind", CPU_ARRAYS)
def test_an_array_in_the_memory_of_the_cpu_is_refused(kind):
    parents, counts = (CPU_ARRAYS[kind](np.array(array, np.int32)) for array in (PARENTS, [5, 4]))
    with pytest.raises(TypeError, match=f"parent_BN: got {kind.split()[-1]}, needs an array on a GPU"):
        ops.visibility.on("cuda")(parents, counts)


def test_an_array_of_jax_in_the_memory_of_the_cpu_is_refused(jax):
    given = np.array(PARENTS, np.int32), np.array([5, 4], np.int32)
    parents, counts = jax.device_put(given, jax.devices("cpu")[0])
    with pytest.raises(TypeError, match="parent_BN: got ArrayImpl, needs an array on a GPU"):
        ops.visibility.on("cuda")(parents, counts)


def test_kernels_wait_for_what_the_callers_stream_did_before():
    stream, logits = cupy.cuda.Stream(non_blocking=True), zeros(64, 4096)
    with stream, in_torch(stream):
        for turn in range(TURNS):
            write_late(logits, turn)
            assert_read(logits, turn)


def test_kernels_wait_for_what_torchs_current_stream_did_before(reader):
    logits = zeros(64, 4096)
    with reader, torch.cuda.stream(torch.cuda.Stream()):
        for turn in range(TURNS):
            write_late(logits, turn)
            assert_read(logits, turn)


def test_kernels_wait_for_jax(jax, reader):
    jnp = jax.numpy

    @jax.jit
    def late(square, turn):
        for _ in range(20):
            square = square @ square
        return jnp.broadcast_to(jnp.arange(4096) == turn, (64, 4096)) + square[0, 0]

    square = jnp.zeros((2048, 2048))
    with reader:
        for turn in range(TURNS):
            assert_read(late(square, turn), turn)


def test_an_event_orders_cupys_arrays_of_two_streams():
    """Nothing else does: an array of CuPy does not know the stream that wrote it."""
    writer, reader = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    tensor = zeros(64, 4096)
    logits = cupy.from_dlpack(tensor)
    for turn in range(TURNS):
        with in_torch(writer):
            write_late(tensor, turn)
        reader.wait_event(writer.record())
        with reader:
            assert_read(logits, turn)


@pytest.mark.parametrize("same", [True, False], ids=["the same stream", "another stream"])
def test_torch_reads_results_when_they_are_written(same):
    stream, identity = cupy.cuda.Stream(non_blocking=True), torch.eye(TURNS, device="cuda")
    columns = zeros(16, TURNS)
    reader = torch.cuda.ExternalStream(stream.ptr) if same else torch.cuda.Stream()
    with stream:
        for turn in range(TURNS):
            with in_torch(stream):
                write_late(columns, turn)
                copied = ops.linear.on("cuda")(columns, identity)  # it has no status to wait for
            with torch.cuda.stream(reader):
                assert (torch.from_dlpack(copied).argmax(dim=1) == turn).all()
