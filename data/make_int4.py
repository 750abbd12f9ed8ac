"""Make golden/int4.kdtr: what compressed-tensors does with INT4 weights. Needs torch and compressed-tensors 0.20.1."""

from pathlib import Path

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward_helpers import _dequantize, _quantize
from compressed_tensors.quantization.utils import calculate_qparams, calculate_range

from kdtree import kdtr

HERE = Path(__file__).parent
GROUP = 32
ARGS = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=GROUP)
SCHEME = QuantizationScheme(targets=["Linear"], weights=ARGS)
SHAPES = ((3, 32), (2, 64), (5, 96), (4, 8), (3, 7), (1, 1), (2, 33), (3, 45), (2, 77))
SOURCE = "compressed-tensors 0.20.1 (format pack-quantized), torch 2.13.0, CPU"
# Scales that no observer finds, in bfloat16: signs, zeros, the largest and the smallest, subnormals.
HARD = (-0.5, 0.0, -0.0, 2.0**123 * 1.9921875, -(2.0**123), 2.0**-126, 2.0**-133, -3 * 2.0**-133, 2.0**-130, 1 / 3)


def per_input(scale_OG: torch.Tensor, width: int) -> torch.Tensor:
    """Repeat the scale of each group for its inputs."""
    return scale_OG.repeat_interleave(GROUP, dim=1)[:, :width]


def scales(weight_OI: torch.Tensor) -> torch.Tensor:
    """Return the scale of each group by the package's rule; the last group may be short."""
    groups = weight_OI.split(GROUP, dim=1)
    low, high = (torch.stack([getattr(group, name)(1) for group in groups], 1) for name in ("amin", "amax"))
    return calculate_qparams(low, high, ARGS)[0]


def answers(code_OI: torch.Tensor, scale_OG: torch.Tensor) -> dict[str, np.ndarray]:
    """Pack, unpack and dequantise; by the whole decompressor too where it takes the width."""
    shape = code_OI.shape
    packed_OW = pack_to_int32(code_OI, 4)
    assert torch.equal(unpack_from_int32(packed_OW, 4, shape), code_OI)
    bf16_OI = _dequantize(code_OI, per_input(scale_OG, shape[1]))
    f32_OI = _dequantize(code_OI, per_input(scale_OG.float(), shape[1]))
    if shape[1] % GROUP == 0:
        state = {"weight_packed": packed_OW, "weight_scale": scale_OG, "weight_shape": torch.tensor(shape)}
        whole_OI = PackedQuantizationCompressor.decompress(state, SCHEME)["weight"]
        assert torch.equal(whole_OI.view(torch.int16), bf16_OI.view(torch.int16))
    arrays = {"code": code_OI, "packed": packed_OW, "scale": scale_OG.float(), "bf16": bf16_OI.float(), "f32": f32_OI}
    return {name: array.numpy() for name, array in arrays.items()}


def quantised(shape: tuple[int, int], kind: int) -> dict[str, np.ndarray]:
    """Quantise a random bfloat16 matrix: plain, tiny, huge, or with groups of zeros and of one sign."""
    weight_OI = torch.randn(shape) * (1.0, 1e-38, 1e37, 1.0)[kind]
    if kind == 3:
        weight_OI[:, ::2] = -weight_OI[:, ::2].abs()
        weight_OI[0] = 0
    weight_OI = weight_OI.bfloat16()
    scale_OG = scales(weight_OI)
    low, high = calculate_range(ARGS, "cpu")
    code_OI = _quantize(weight_OI, per_input(scale_OG, shape[1]), None, low, high, ARGS, dtype=torch.int8)
    if shape[1] % GROUP == 0:
        state = PackedQuantizationCompressor.compress({"weight": weight_OI, "weight_scale": scale_OG}, SCHEME)
        assert torch.equal(state["weight_packed"], pack_to_int32(code_OI, 4))
    return {"weight": weight_OI.float().numpy(), **answers(code_OI, scale_OG)}


def main() -> None:
    """Write the file."""
    torch.manual_seed(0)
    cases = [quantised(shape, kind) for shape in SHAPES for kind in range(4)]
    code_OI = torch.arange(-8, 8, dtype=torch.int8).repeat(len(HARD), 4)
    cases.append(answers(code_OI, torch.tensor(HARD).bfloat16()[:, None].repeat(1, 2)))
    named = {f"{i:02}/{name}": array for i, case in enumerate(cases) for name, array in case.items()}
    kdtr.save(HERE / "golden" / "int4.kdtr", named, {"source": SOURCE})


if __name__ == "__main__":
    main()
