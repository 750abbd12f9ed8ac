"""The drafter in PyTorch against the numpy truth."""

import numpy as np
import pytest
from drafter_fixtures import DRAFTER, drafter_config, random_drafter, write_drafter
from safetensors.numpy import load_file

from kdtree.reference.block_diffusion import draft, empty_context, extend_context

torch = pytest.importorskip("torch")

TOKENS, VOCAB = 12, 61


def torch_drafter(folder, config):
    """Return the module with the weights of a folder, in float64."""
    from kdtree.torch_drafter import TorchDrafter

    module = TorchDrafter(config).double()
    tensors = load_file(folder / "model.safetensors")
    module.load_state_dict({name: torch.from_numpy(value.astype(np.float64)) for name, value in tensors.items()})
    return module


@pytest.mark.parametrize("changes", [{}, {"num_key_value_heads": 6}, {"yarn": None, "num_hidden_layers": 1}])
def test_the_torch_drafter_drafts_what_the_truth_drafts(tmp_path, changes):
    config = drafter_config(**changes)
    weights = random_drafter(config, dtype=np.float64)
    write_drafter(tmp_path, weights, dtype=np.float64)
    rng = np.random.default_rng(0)
    feature_TI = rng.standard_normal((TOKENS, config.feature_size))
    embed_VD, lm_head_VD = rng.standard_normal((2, VOCAB, config.hidden_size))
    anchors = [0, 1, 5, TOKENS]
    block_AN = np.full((len(anchors), config.block_size), config.mask_token_id, np.int32)
    block_AN[:, 0] = rng.integers(0, VOCAB, len(anchors))
    with torch.no_grad():
        hidden_BAND = torch_drafter(tmp_path, config)(
            torch.from_numpy(feature_TI)[None], torch.from_numpy(embed_VD[block_AN])[None], torch.tensor([anchors])
        )
        logprob_ALV = (hidden_BAND[0, :, 1:] @ torch.from_numpy(lm_head_VD).T).log_softmax(-1).numpy()
    for a, anchor in enumerate(anchors):
        context = extend_context(weights, empty_context(weights), feature_TI[:anchor])
        wanted_LV = draft(weights, embed_VD, lm_head_VD, context, block_AN[a])
        np.testing.assert_allclose(logprob_ALV[a], wanted_LV, atol=1e-10)


def test_a_drafter_cast_to_half_keeps_its_angles(tmp_path):
    from kdtree.torch_drafter import TorchDrafter

    assert TorchDrafter(DRAFTER).bfloat16().inv_freq_J.dtype == torch.float64
