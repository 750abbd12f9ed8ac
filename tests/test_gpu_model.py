"""The model and the decode loop on a GPU: the same code as on the CPU, over the kernels of CUDA."""

import numpy as np
import pytest

from kdtree import Seeded, autoregressive, greedy, speculative
from kdtree.shipped import tiny_pair, tiny_prompts

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("sampler", [greedy, Seeded(0.7, 3)])
@pytest.mark.parametrize("budget", [7, 64])
def test_speculative_tokens_on_a_gpu_are_those_of_plain_decoding_there(sampler, budget):
    target, drafter = tiny_pair(backend="cuda")
    prompts = tiny_prompts()[:3]
    plain = autoregressive(target, prompts, max_new_tokens=48, sampler=sampler)
    fast = speculative(target, drafter, prompts, budget=budget, max_new_tokens=48, sampler=sampler)
    assert [s.tokens for s in fast.sequences] == [s.tokens for s in plain.sequences]
    assert fast.tau > 2


def test_a_tree_has_the_bits_of_plain_decoding_on_a_gpu():
    target, _ = tiny_pair(backend="cuda")
    token_T = tiny_prompts()[0]
    whole, parts = target.new_cache(1), target.new_cache(1)
    stream_YTD = target.read(whole, 0, token_T)
    steps = [target.read(parts, 0, token_T[t : t + 1]) for t in range(len(token_T))]
    np.testing.assert_array_equal(stream_YTD, np.concatenate(steps, axis=1))
