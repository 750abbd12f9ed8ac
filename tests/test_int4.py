"""INT4 packing, scales and both dequantisations, against their definition and compressed-tensors."""

import ml_dtypes
import numpy as np
import pytest
from golden import DATA
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from kdtree import ShapeError, kdtr
from kdtree.reference.int4 import bf16_nearest, int4_pack, int4_quantize, int4_unpack
from kdtree.reference.int4_dequant import int4_dequant

WIDTHS = st.one_of(st.integers(0, 70), st.sampled_from([127, 128, 129]))
SHAPES = st.tuples(st.integers(0, 4), WIDTHS)
CODES = SHAPES.flatmap(lambda shape: npst.arrays(np.int8, shape, elements=st.integers(-8, 7)))


def bits(array):
    return np.ascontiguousarray(array, np.float32).view(np.uint32)


def cases():
    """Return what compressed-tensors did, a dict of arrays a case; the last has no weight."""
    found = {}
    for name, array in kdtr.load(DATA / "golden" / "int4.kdtr").tensors.items():
        case, _, field = name.partition("/")
        found.setdefault(case, {})[field] = array
    assert len(found) == 37
    return found.values()


def scales_for(code_OI, rng):
    """Return bfloat16 scales of every size and sign."""
    shape = len(code_OI), -(-code_OI.shape[1] // 32)
    scale_OG = rng.standard_normal(shape) * 2.0 ** rng.integers(-135, 120, shape)
    return scale_OG.astype(ml_dtypes.bfloat16).astype(np.float32)


@given(CODES)
def test_unpacking_returns_what_was_packed(code_OI):
    packed_OW = int4_pack(code_OI)
    assert packed_OW.dtype == np.int32
    assert packed_OW.shape == (len(code_OI), -(-code_OI.shape[1] // 8))
    unpacked_OI = int4_unpack(packed_OW, code_OI.shape[1])
    assert unpacked_OI.dtype == np.int8
    np.testing.assert_array_equal(unpacked_OI, code_OI)


def test_the_first_code_lies_in_the_lowest_bits():
    assert int4_pack([[-7, -8, -8, -8, -8, -8, -8, -8]])[0, 0] == 1
    assert int4_pack([[-8] * 7 + [7]])[0, 0] == np.uint32(0xF0000000).view(np.int32)
    assert int4_pack([[-8] * 8 + [-6]]).tolist() == [[0, 2]]


@given(CODES, st.integers(0, 2**32 - 1))
def test_padding_nibbles_do_not_matter(code_OI, seed):
    rng = np.random.default_rng(seed)
    width, packed_OW, scale_OG = code_OI.shape[1], int4_pack(code_OI), scales_for(code_OI, rng)
    other_OW = packed_OW.copy()
    if width % 8:
        other_OW.view(np.uint32)[:, -1] |= np.uint32(0xFFFFFFFF << 4 * (width % 8) & 0xFFFFFFFF)
    for rounded in (True, False):
        np.testing.assert_array_equal(
            bits(int4_dequant(other_OW, scale_OG, width, rounded)),
            bits(int4_dequant(packed_OW, scale_OG, width, rounded)),
        )


@given(CODES, st.integers(0, 2**32 - 1))
def test_every_weight_is_its_code_times_its_scale(code_OI, seed):
    scale_OG = scales_for(code_OI, np.random.default_rng(seed))
    packed_OW, width = int4_pack(code_OI), code_OI.shape[1]
    exact_OI = np.array(
        [[float(code_OI[o, i]) * float(scale_OG[o, i // 32]) for i in range(width)] for o in range(len(code_OI))]
    ).reshape(code_OI.shape)
    np.testing.assert_array_equal(int4_dequant(packed_OW, scale_OG, width, rounded=False), exact_OI)
    np.testing.assert_array_equal(
        int4_dequant(packed_OW, scale_OG, width), exact_OI.astype(ml_dtypes.bfloat16).astype(np.float32)
    )


@given(npst.arrays(np.uint32, st.integers(0, 40), elements=st.integers(0, 2**32 - 1)))
def test_rounding_to_bfloat16_is_that_of_ml_dtypes(words):
    every_tie = (np.arange(2**16, dtype=np.uint32) << 16) | 0x8000
    for raw in (words, every_tie, every_tie - 1, every_tie + 1, every_tie & 0xFFFF0000):
        value = raw.view(np.float32)
        value = value[np.abs(value) < 3.38e38]
        np.testing.assert_array_equal(
            bits(bf16_nearest(value)), bits(value.astype(ml_dtypes.bfloat16).astype(np.float32))
        )


@given(SHAPES, st.integers(0, 2**32 - 1), st.integers(-100, 100))
def test_a_quantised_weight_moves_by_half_a_scale_at_most(shape, seed, exponent):
    weight_OI = np.random.default_rng(seed).standard_normal(shape) * 2.0**exponent
    code_OI, scale_OG = int4_quantize(weight_OI)
    back_OI = int4_dequant(int4_pack(code_OI), scale_OG, shape[1], rounded=False)
    scale_OI = np.repeat(scale_OG, 32, axis=1)[:, : shape[1]]
    assert (np.abs(back_OI - weight_OI) <= scale_OI / 2 + np.abs(weight_OI) / 128).all()


def test_a_group_of_zeros_has_a_scale_and_stays_zero():
    code_OI, scale_OG = int4_quantize(np.zeros((2, 40)))
    assert not code_OI.any()
    assert (scale_OG == 2.0**-7).all()


def test_codes_pack_and_unpack_as_in_compressed_tensors():
    for case in cases():
        np.testing.assert_array_equal(int4_pack(case["code"]), case["packed"])
        np.testing.assert_array_equal(int4_unpack(case["packed"], case["code"].shape[1]), case["code"])


def test_scales_and_codes_are_those_of_compressed_tensors():
    for case in cases():
        if "weight" in case:
            code_OI, scale_OG = int4_quantize(case["weight"])
            np.testing.assert_array_equal(code_OI, case["code"])
            np.testing.assert_array_equal(bits(scale_OG), bits(case["scale"]))


@pytest.mark.parametrize(("name", "rounded"), [("bf16", True), ("f32", False)])
def test_weights_are_bit_equal_to_compressed_tensors(name, rounded):
    for case in cases():
        weight_OI = int4_dequant(case["packed"], case["scale"], case["code"].shape[1], rounded)
        np.testing.assert_array_equal(bits(weight_OI), bits(case[name]))


def test_the_installed_compressed_tensors_agrees():
    torch = pytest.importorskip("torch")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    weight_OI = np.random.default_rng(0).standard_normal((64, 96)).astype(ml_dtypes.bfloat16).astype(np.float32)
    code_OI, scale_OG = int4_quantize(weight_OI)
    state = {"weight": torch.tensor(weight_OI).bfloat16(), "weight_scale": torch.tensor(scale_OG).bfloat16()}
    packed = PackedQuantizationCompressor.compress(state, scheme)
    np.testing.assert_array_equal(packed["weight_packed"].numpy(), int4_pack(code_OI))
    theirs_OI = PackedQuantizationCompressor.decompress(packed, scheme)["weight"].float().numpy()
    np.testing.assert_array_equal(bits(int4_dequant(int4_pack(code_OI), scale_OG, 96)), bits(theirs_OI))


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, 2.0**124, -(2.0**124)])
def test_a_scale_whose_weights_are_not_finite_is_refused(scale):
    scale_OG = np.ones((2, 2), np.float32)
    scale_OG[1, 1] = scale
    with pytest.raises(ValueError, match="scale_OG: got .* at row 1, group 1; needs finite scales"):
        int4_dequant(np.zeros((2, 5), np.int32), scale_OG, 40)


def test_the_largest_scale_gives_finite_weights():
    scale_OG = np.full((1, 1), np.nextafter(np.float32(2.0**124), np.float32(0)))
    for rounded in (True, False):
        assert np.isfinite(int4_dequant([[0]], scale_OG, 8, rounded)).all()


@pytest.mark.parametrize("weight", [np.nan, np.inf, 1e300, -(2.0**126)])
def test_a_weight_that_is_not_finite_is_not_quantised(weight):
    with pytest.raises(ValueError, match="weight_OI: got a weight that is not finite"):
        int4_quantize([[1.0, weight]])


ONE = np.ones((2, 1), np.float32)


@pytest.mark.parametrize(
    ("refused", "error", "message"),
    [
        (lambda: int4_pack([[8]]), ValueError, "code_OI: got values from 8 to 8, needs -8 to 7"),
        (lambda: int4_pack([[0.5]]), ShapeError, "code_OI: got dtype float64, needs integers"),
        (lambda: int4_pack([1]), ShapeError, r"code_OI: got shape \(1,\)"),
        (lambda: int4_quantize([1.0]), ShapeError, r"weight_OI: got shape \(1,\)"),
        (lambda: int4_unpack([[1, 2]], 8), ShapeError, r"packed_OW: got shape \(1, 2\), needs 1 words for 8 inputs"),
        (lambda: int4_unpack([[1]], -1), ValueError, "in_features: got -1"),
        (lambda: int4_dequant([[1], [2]], ONE[:1], 8), ShapeError, r"got float32 \(1, 1\), needs float32 \(2, 1\)"),
        (lambda: int4_dequant([[1], [2]], np.float64(ONE), 8), ShapeError, "scale_OG: got float64"),
        (lambda: int4_dequant([[1], [2]], np.int32(ONE), 8), ShapeError, "scale_OG: got dtype int32"),
        (lambda: int4_dequant([[1], [2]], ONE, 9), ShapeError, "packed_OW: got shape"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(refused, error, message):
    with pytest.raises(error, match=message):
        refused()
