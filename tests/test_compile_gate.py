"""Every kernel compiles for the target and for what it is tested on, without a GPU, and spills nothing."""

import re
import sys
from types import SimpleNamespace

import pytest
from test_project import ROOT

from kdtree.kernels.cuda import _cache, _device, _report, _source

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no wheel of NVRTC")
PAGE = (ROOT / _report.PAGE).read_text()
VARIANTS = [(op, defines) for op in _source.kernel_ops() for defines in _source.variants(op)]
IDS = ["-".join([op, *map(str, defines.values())]) for op, defines in VARIANTS]
WRITES = "python -m kdtree.kernels.cuda._report writes it"


@pytest.mark.parametrize(("op", "defines"), VARIANTS, ids=IDS)
def test_a_kernel_compiles_without_a_warning_spills_nothing_fits_and_takes_what_the_document_says(op, defines):
    """One test, so that workers that share the tests compile nothing twice."""
    for architecture in _report.ARCHITECTURES:
        log = _report.compile_log(op, defines, architecture)
        assert _report.warnings(log) == []
        usages = _report.usages(log)
        assert [usage.kernel for usage in usages] == sorted(_source.kernel_names(_source.source(op)))
        for usage in usages:
            assert usage.spilled_bytes == 0, usage
            assert usage.shared_bytes <= _source.SHARED_LIMIT, usage
    assert "\n".join(["", *_report.rows(op, defines), ""]) in PAGE, WRITES


def test_the_table_of_the_document_has_a_row_for_each_kernel_of_each_variant():
    rows = re.findall(r"^\| \w+ \| [^|]*\| \d.*\|$", PAGE.partition(_report.BEGIN)[2], re.MULTILINE)
    named = [
        [kernel, " ".join(f"{name}={value}" for name, value in sorted(defines.items()))]
        for op, defines in VARIANTS
        for kernel in sorted(_source.kernel_names(_source.source(op)))
    ]
    assert [row.removeprefix("| ").split(" | ")[:2] for row in rows] == named, WRITES
    assert _report.page_with_table(PAGE, rows) == PAGE, WRITES


def test_a_spill_and_shared_memory_are_read_from_the_log():
    moved = "".join(f"float x{k} = a[{k}];" for k in range(90)) + "__syncthreads();"
    moved += "".join(f"a[2 * {k} + threadIdx.x] = x{k} + x{(k + 7) % 90} * s[0];" for k in range(90))
    body = f"{{ __shared__ float s[9]; s[threadIdx.x % 9] = a[9]; {moved} }}"
    text = f'extern "C" __global__ void __launch_bounds__(1024, 2) f(volatile float* a) {body}'
    log = _report.compile_source(text, ["-arch=sm_90", "--ptxas-options=-v"])
    (usage,) = _report.usages(log)
    assert usage.kernel == "f"
    assert usage.shared_bytes == 36
    assert usage.spilled_bytes > 0
    assert _report.warnings(log) == []


def test_warnings_of_the_compiler_and_of_ptxas_are_read_from_the_log():
    text = 'extern "C" __global__ void __launch_bounds__(1024, 9) f(int* a) { int unused; a[0] = 1; }'
    said = "\n".join(_report.warnings(_report.compile_source(text, ["-arch=sm_90", "--ptxas-options=-v"])))
    assert 'variable "unused" was declared but never referenced' in said
    assert "ptxas warning : Value of threads per SM for entry f is out of range" in said
    assert "registers" not in said


def test_a_source_that_nvrtc_refuses_is_an_error_with_its_log():
    with pytest.raises(RuntimeError, match='identifier "nothing" is undefined'):
        _report.compile_source("__global__ void f() { nothing(); }", [])


@pytest.mark.parametrize("op", _source.kernel_ops())
def test_every_kernel_has_a_wrapper_with_a_launch_of_its_own(op):
    assert (_source.FOLDER / f"{op}.py").is_file()
    assert _source.kernel_names(_source.source(op))


class Nvrtc:
    """What CuPy gives of NVRTC: it compiles a text to its upper case, and refuses one without a kernel."""

    class NVRTCError(Exception):
        pass

    def __init__(self, version):
        self.getVersion = lambda: version
        self.compiled = []

    def createProgram(self, text, name, headers, names):
        return text

    def compileProgram(self, text, options):
        self.compiled.append(options)
        if "__global__" not in text:
            raise self.NVRTCError("refused")

    def getCUBIN(self, text):
        return text.upper().encode()

    def getProgramLog(self, text):
        return "no kernel"

    def destroyProgram(self, text):
        pass


@pytest.fixture
def nvrtc_of(monkeypatch, tmp_path):
    """Return a function that puts an NVRTC of a version in the place of CuPy's, over an empty cache."""
    monkeypatch.setattr(_cache, "folder", lambda kind: tmp_path)

    def put(*version):
        nvrtc = Nvrtc(version)
        monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", SimpleNamespace(nvrtc=nvrtc))
        return nvrtc

    return put


def test_a_cubin_is_compiled_once_for_a_text_options_a_gpu_and_an_nvrtc(nvrtc_of, tmp_path):
    nvrtc = nvrtc_of(13, 0)
    for _ in range(2):
        for text in ("__global__ a", "__global__ b"):
            for options in (("-DA=1",), ("-DA=2",)):
                for capability in ("90", "120"):
                    assert _device.cubin(text, options, capability) == text.upper().encode()
    assert len(nvrtc.compiled) == len(set(tmp_path.glob("*.cubin"))) == 8
    assert nvrtc.compiled[:2] == [("-DA=1", "--gpu-architecture=sm_90"), ("-DA=1", "--gpu-architecture=sm_120")]
    later = nvrtc_of(13, 1)
    assert _device.cubin("__global__ a", ("-DA=1",), "90") == b"__GLOBAL__ A"
    assert len(later.compiled) == 1


def test_a_cubin_that_is_refused_is_an_error_with_the_log_each_time(nvrtc_of, tmp_path):
    nvrtc_of(13, 0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="refused: NVRTC refuses the kernel:\nno kernel"):
            _device.cubin("nothing", (), "90")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [(12, 6), (11, 8)])
def test_an_nvrtc_that_is_older_than_the_gpu_is_refused_with_the_version_that_is_needed(nvrtc_of, version):
    nvrtc = nvrtc_of(*version)
    with pytest.raises(
        RuntimeError, match=f"got version {version[0]}.{version[1]}, needs 12.8 or a later one for sm_120"
    ):
        _device.cubin("__global__ a", (), "120")
    assert nvrtc.compiled == []
    assert _device.cubin("__global__ a", (), "90") == b"__GLOBAL__ A"


@pytest.mark.parametrize("version", [(12, 8), (12, 10), (13, 0)])
def test_an_nvrtc_that_knows_the_gpu_compiles_for_it(nvrtc_of, version):
    nvrtc_of(*version)
    assert _device.cubin("__global__ a", (), "120") == b"__GLOBAL__ A"
