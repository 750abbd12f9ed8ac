import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from kdtree.sampling import Seeded, greedy, gumbel_row

EULER = 0.5772156649015329


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_seeded_tokens_are_drawn_from_the_softmax_at_the_temperature(temperature):
    n = 20_000
    logit_V = np.float32([0.5, -1.0, 0.0, 1.0, -np.inf])
    probability = np.exp(logit_V.astype(float) / temperature)
    probability /= probability.sum()
    token = Seeded(temperature, seed=11)(np.tile(logit_V, (n, 1)), np.arange(n))
    hits = np.bincount(token, minlength=5)
    deviation = np.sqrt(n * probability * (1 - probability))
    assert (np.abs(hits - n * probability) <= 5 * deviation).all()


def test_the_noise_is_standard_gumbel_and_finite():
    noise = np.concatenate([gumbel_row(3, position, 1000) for position in range(100)])
    assert np.isfinite(noise).all()
    assert abs(noise.mean() - EULER) < 5 * np.sqrt(np.pi**2 / 6 / noise.size)
    assert abs((noise < 0).mean() - np.exp(-1)) < 5 * np.sqrt(0.25 / noise.size)


def philox_words(key, n):
    """Philox4x64-10 of Salmon et al. (2011) in plain integers; numpy counts from block 1."""
    mask, words = 2**64 - 1, []
    for block in range(1, n // 4 + 2):
        c, (k0, k1) = (block, 0, 0, 0), key
        for _ in range(10):
            one, other = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = (other >> 64) ^ c[1] ^ k0, other & mask, (one >> 64) ^ c[3] ^ k1, one & mask
            k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
        words += c
    return words[:n]


@pytest.mark.parametrize("key", [(0, 0), (0, 5), (2**64 - 1, 2**31)])
def test_the_noise_comes_from_the_published_words(key):
    uniform = np.array([((word >> 12) + 0.5) / 2**52 for word in philox_words(key, 11)])
    np.testing.assert_allclose(gumbel_row(*key, 11), -np.log(-np.log(uniform)), rtol=1e-13)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1), st.integers(1, 50), st.integers(1, 50))
def test_a_larger_vocabulary_extends_the_noise(seed, position, one, other):
    small, large = sorted((one, other))
    np.testing.assert_array_equal(gumbel_row(seed, position, large)[:small], gumbel_row(seed, position, small))


def test_the_noise_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        gumbel_row(0, 0, 4)[0] = 1


@given(npst.arrays(np.float32, (6, 9), elements=st.floats(-4, 4, width=32)), st.permutations(range(6)))
def test_a_seeded_token_depends_on_its_row_and_position_alone(logit_TV, order):
    position_T = np.array([4, 0, 9, 4, 7, 0])
    sampler = Seeded(0.7, seed=2)
    token_T = sampler(logit_TV, position_T)
    assert token_T.dtype == np.int32
    np.testing.assert_array_equal(sampler(logit_TV[order], position_T[order]), token_T[order])
    np.testing.assert_array_equal(sampler(logit_TV.astype(np.float64), position_T), token_T)
    alone = [sampler(logit_TV[t : t + 1], position_T[t : t + 1])[0] for t in range(6)]
    np.testing.assert_array_equal(alone, token_T)


def test_seeds_and_positions_give_different_noise():
    rows = {tuple(gumbel_row(seed, position, 4)) for seed in range(20) for position in range(20)}
    assert len(rows) == 400


def test_a_low_temperature_is_greedy():
    logit_TV = np.random.default_rng(0).permuted(np.tile(np.arange(8.0), (50, 1)), axis=1)
    position_T = np.arange(50)
    np.testing.assert_array_equal(Seeded(1e-3, 5)(logit_TV, position_T), greedy(logit_TV, position_T))


def test_greedy_takes_the_lowest_of_equal_tokens():
    assert greedy(np.float32([[1, 3, 3], [0, 0, 0]]), np.array([0, 1])).tolist() == [1, 0]


@pytest.mark.parametrize("sampler", [greedy, Seeded(1.0, 0)])
def test_nan_is_no_token(sampler):
    with pytest.raises(ValueError, match="NaN at row 1"):
        sampler(np.array([[0.0, 1.0], [np.nan, 0.0]]), np.array([0, 1]))


@pytest.mark.parametrize("temperature", [0, -1.0, 5e-309, np.nan, np.inf])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    with pytest.raises(ValueError, match=r"temperature: got .*; for T = 0 take kdtree\.greedy"):
        Seeded(temperature, 0)


@pytest.mark.parametrize("seed", [-1, 1.5, 2**64])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match="seed: got"):
        Seeded(1.0, seed)
