"""Every kernel compiles for the target and for what it is tested on, without a GPU, and spills nothing."""

import sys

import pytest
from test_project import ROOT

from kdtree.kernels.cuda import _report, _source

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no wheel of NVRTC")
VARIANTS = [
    pytest.param(op, defines, architecture, id="-".join([op, *map(str, defines.values()), architecture]))
    for op in _source.kernel_ops()
    for defines in _source.variants(op)
    for architecture in _report.ARCHITECTURES
]


@pytest.mark.parametrize(("op", "defines", "architecture"), VARIANTS)
def test_a_kernel_compiles_spills_nothing_and_fits(op, defines, architecture):
    usages = list(_report.usages(op, defines, architecture))
    assert [usage.kernel for usage in sorted(usages)] == sorted(_source.kernel_names(op))
    for usage in usages:
        assert usage.spilled_bytes == 0, usage
        assert usage.shared_bytes <= _source.SHARED_LIMIT, usage


@pytest.mark.parametrize(("op", "defines", "architecture"), VARIANTS)
def test_nvrtc_has_no_warning(op, defines, architecture):
    options = (*_source.OPTIONS, *_source.define_options(defines), f"--gpu-architecture={architecture}")
    assert _report.compile_source(_source.source(op), options).strip("\0\n ") == ""


def test_the_table_of_the_document_is_that_of_now():
    page = (ROOT / _report.PAGE).read_text()
    assert _report.page_with_table(page) == page, "python -m kdtree.kernels.cuda._report writes it"


def test_a_spill_and_shared_memory_are_read_from_the_log():
    moved = "".join(f"float x{k} = a[{k}];" for k in range(90)) + "__syncthreads();"
    moved += "".join(f"a[2 * {k} + threadIdx.x] = x{k} + x{(k + 7) % 90} * s[0];" for k in range(90))
    body = f"{{ __shared__ float s[9]; s[threadIdx.x % 9] = a[9]; {moved} }}"
    text = f'extern "C" __global__ void __launch_bounds__(1024, 2) f(volatile float* a) {body}'
    log = _report.compile_source(text, ["-arch=sm_90", "--ptxas-options=-v"])
    entry = _report.ENTRY.search(log)
    assert entry["kernel"] == "f"
    assert int(entry["shared"]) == 36
    assert int(entry["stores"]) > 0


def test_a_source_that_nvrtc_refuses_is_an_error_with_its_log():
    with pytest.raises(RuntimeError, match='identifier "nothing" is undefined'):
        _report.compile_source("__global__ void f() { nothing(); }", [])


@pytest.mark.parametrize("op", _source.kernel_ops())
def test_every_kernel_has_a_wrapper_with_a_launch_of_its_own(op):
    assert (_source.FOLDER / f"{op}.py").is_file()
    assert _source.kernel_names(op)
