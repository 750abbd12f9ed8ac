"""Drafters that no target would choose: wrong, random, silent, huge, tied."""

from dataclasses import dataclass

import numpy as np

__all__ = ["ADVERSARIES", "Adversary", "adversary"]


@dataclass
class Adversary:
    """Propose `rows(rng, known tokens, L, V)`, the same for the same known tokens."""

    rows: object
    draft_len: int
    vocab_size: int
    dtype: type = np.float32

    def session(self):
        return self

    def propose(self, token_T, new_hidden_YTD):
        rng = np.random.default_rng(token_T)
        with np.errstate(divide="ignore"):
            return np.asarray(self.rows(rng, token_T, self.draft_len, self.vocab_size), self.dtype)


def random_logits(rng, token_T, L, V):
    return rng.normal(size=(L, V))


def repeat_the_last(rng, token_T, L, V):
    return np.log(np.eye(V)[np.full(L, token_T[-1])] * 0.9 + 0.1 / V)


def one_candidate(rng, token_T, L, V):
    return np.log(np.eye(V)[rng.integers(0, V, L)])


def no_candidate(rng, token_T, L, V):
    return np.full((L, V), -np.inf)


def a_gap_in_the_middle(rng, token_T, L, V):
    rows = random_logits(rng, token_T, L, V)
    rows[L // 2 : L // 2 + 1] = -np.inf
    return rows


def huge(rng, token_T, L, V):
    return rng.normal(size=(L, V)) * 1e37


def tiny(rng, token_T, L, V):
    return rng.normal(size=(L, V)) * 1e-37


def constant(rng, token_T, L, V):
    return np.zeros((L, V))


def plateaus(rng, token_T, L, V):
    return -rng.integers(0, 3, (L, V))


ADVERSARIES = {
    rows.__name__: rows
    for rows in (
        random_logits,
        repeat_the_last,
        one_candidate,
        no_candidate,
        a_gap_in_the_middle,
        huge,
        tiny,
        constant,
        plateaus,
    )
}


def adversary(name, draft_len, vocab_size, dtype=np.float32):
    return Adversary(ADVERSARIES[name], draft_len, vocab_size, dtype)


@dataclass
class AlwaysWrong:
    """Never propose the target's token at the first depth: all others tie, it is no candidate."""

    prompts: list
    continuations: list
    draft_len: int
    vocab_size: int

    def session(self):
        return AlwaysWrongSession(self)


class AlwaysWrongSession:
    def __init__(self, drafter):
        self.drafter, self.right = drafter, None

    def propose(self, token_T, new_hidden_YTD):
        d = self.drafter
        if self.right is None:
            s = [list(prompt) for prompt in d.prompts].index(token_T.tolist())
            self.right = [*d.prompts[s], *d.continuations[s]]
        rows = np.zeros((d.draft_len, d.vocab_size), np.float32)
        for depth, token in enumerate(self.right[len(token_T) :][: d.draft_len]):
            rows[depth, token] = -np.inf
        return rows
