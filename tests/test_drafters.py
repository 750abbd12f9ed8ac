import numpy as np
import pytest
from adversaries import ADVERSARIES, adversary
from hypothesis import given
from hypothesis import strategies as st

from kdtree.drafters.oracle import Oracle
from kdtree.drafters.prompt_lookup import PromptLookup

NO_HIDDEN = np.zeros((0, 0, 0), np.float32)


def ask(drafter, tokens):
    return drafter.session().propose(np.array(tokens, np.int32), NO_HIDDEN)


@pytest.mark.parametrize("error_rate", [0.0, 0.2, 0.5, 1.0])
def test_an_oracle_errs_at_its_rate(error_rate):
    n, V = 4000, 12
    right = np.random.default_rng(0).integers(0, V, n)
    rows = ask(Oracle([[1]], [right], draft_len=n, vocab_size=V, error_rate=error_rate, seed=3), [1])
    rank = (rows > rows[np.arange(n), right][:, None]).sum(axis=1)
    for r, share in ((0, 1 - error_rate), (1, error_rate / 2), (2, error_rate / 4)):
        assert abs((rank == r).sum() - n * share) <= 5 * np.sqrt(n * share * (1 - share))


@given(st.floats(0, 1), st.integers(0, 2**31 - 1), st.integers(2, 40))
def test_oracle_rows_are_distributions_and_the_first_rank_is_the_best(error_rate, seed, V):
    rows = ask(Oracle([[1]], [[0, 1, 0]], draft_len=3, vocab_size=V, error_rate=error_rate, seed=seed), [1])
    missing = 0.5 * 2.0 ** (1 - V)  # of the ranks past V
    total = np.exp(rows.astype(np.float64)).sum(axis=1)
    assert ((1 - missing - 1e-5 <= total) & (total <= 1 + 1e-5)).all()
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.exp(rows.max(axis=1)), 1 - np.clip(error_rate, 0.01, 0.5), rtol=1e-6)


@given(st.integers(1, 6), st.floats(0, 1), st.integers(0, 9))
def test_an_oracle_errs_by_position_whatever_the_rounds(committed, error_rate, seed):
    prompt, continuation = [3, 1], [4, 1, 5, 9, 2, 6, 5]
    oracle = Oracle([prompt], [continuation], draft_len=7, vocab_size=10, error_rate=error_rate, seed=seed)
    session = oracle.session()
    first = session.propose(np.array(prompt), NO_HIDDEN)
    later = session.propose(np.array(prompt + continuation[:committed]), NO_HIDDEN)
    np.testing.assert_array_equal(later[: 7 - committed], first[committed:])
    assert (later[7 - committed :] == -np.inf).all()


def test_oracle_sessions_keep_to_their_own_prompt():
    oracle = Oracle([[1], [1, 2]], [[2, 3, 4], [5, 6]], draft_len=2, vocab_size=9)
    one, other = oracle.session(), oracle.session()
    assert one.propose(np.array([1]), NO_HIDDEN).argmax(axis=1).tolist() == [2, 3]
    assert other.propose(np.array([1, 2]), NO_HIDDEN).argmax(axis=1).tolist() == [5, 6]
    assert one.propose(np.array([1, 2]), NO_HIDDEN).argmax(axis=1).tolist() == [3, 4]


def test_an_oracle_of_one_token_cannot_err():
    assert ask(Oracle([[0]], [[0]], draft_len=1, vocab_size=1, error_rate=1.0), [0]).shape == (1, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"error_rate": 1.5}, "error_rate: got 1.5, needs 0 to 1"),
        ({"error_rate": np.nan}, "error_rate: got nan"),
        ({"draft_len": -1}, "draft_len: got -1"),
        ({"seed": -1}, "seed: got -1"),
        ({"continuations": []}, "continuations: got 0, needs one for each of 1 prompts"),
    ],
)
def test_an_oracle_refuses_settings_out_of_range(changes, message):
    settings = {"prompts": [[1]], "continuations": [[2]], "draft_len": 2, "vocab_size": 5} | changes
    with pytest.raises(ValueError, match=message):
        Oracle(settings.pop("prompts"), settings.pop("continuations"), **settings)


def test_an_oracle_refuses_a_prompt_that_it_does_not_know():
    with pytest.raises(ValueError, match="token_T: got a prompt of 2 tokens that the oracle was not given"):
        ask(Oracle([[1]], [[2]], draft_len=2, vocab_size=5), [1, 2])


def lookup_by_definition(tokens, max_ngram, L, V):
    """Slide every n-gram over the text, longest first; rows as fractions."""
    for n in range(max_ngram, 0, -1):
        follow = [i + n for i in range(len(tokens) - n) if tokens[i : i + n] == tokens[len(tokens) - n :]]
        if follow:
            break
    else:
        follow = []
    rows = np.empty((L, V))
    for depth in range(L):
        seen = [tokens[i + depth] for i in follow if i + depth < len(tokens)]
        rows[depth] = [(seen.count(v) + 1 / V) / (len(seen) + 1) for v in range(V)]
    return rows


texts = st.lists(st.integers(0, 3), min_size=1, max_size=20)


@given(texts, st.integers(0, 4), st.integers(0, 5))
def test_prompt_lookup_counts_what_followed_the_longest_match(tokens, max_ngram, L):
    rows = ask(PromptLookup(draft_len=L, vocab_size=5, max_ngram=max_ngram), tokens)
    np.testing.assert_allclose(np.exp(rows), lookup_by_definition(tokens, max_ngram, L, 5), rtol=1e-6)
    assert rows.dtype == np.float32


@given(texts, st.integers(1, 5))
def test_prompt_lookup_rows_are_distributions(tokens, L):
    rows = ask(PromptLookup(draft_len=L, vocab_size=7), tokens)
    assert rows.shape == (L, 7)
    np.testing.assert_allclose(np.exp(rows).sum(axis=1), 1, rtol=1e-6)


def test_prompt_lookup_prefers_a_longer_match():
    rows = ask(PromptLookup(draft_len=1, vocab_size=9), [1, 2, 7, 5, 2, 8, 6, 2, 8, 1, 2])
    assert rows.argmax() == 7
    rows = ask(PromptLookup(draft_len=1, vocab_size=9, max_ngram=1), [1, 2, 7, 5, 2, 8, 6, 2, 8, 1, 2])
    assert rows.argmax() == 8


@pytest.mark.parametrize("name", ADVERSARIES)
def test_adversaries_keep_to_the_protocol_and_repeat_themselves(name):
    drafter = adversary(name, 3, 7)
    rows = ask(drafter, [1, 2, 3])
    assert rows.shape == (3, 7)
    assert not np.isnan(rows).any()
    np.testing.assert_array_equal(rows, ask(drafter, [1, 2, 3]))


def test_a_text_beyond_the_vocabulary_of_the_lookup_is_refused():
    with pytest.raises(ValueError, match="vocab_size: got 10, needs more than token 50"):
        PromptLookup(draft_len=2, vocab_size=10).propose(np.array([50, 1, 50]), np.zeros((0, 0, 0)))
