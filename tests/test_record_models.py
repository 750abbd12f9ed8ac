"""Recording the project's own models: the bits of a live run, at the speed of one."""

import numpy as np
import pytest
from drafter_fixtures import drafter_config, random_drafter, same_bits
from model_fixtures import TINY, random_weights

from kdtree import Seeded, Target, greedy, record, replay, speculative
from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.record_models import ModelPair

WEIGHTS = random_weights()
DRAFTER = random_drafter(drafter_config(block_size=4))
PROMPTS = [[5, 17, 33, 2, 60, 9], [8]]
ANCHORS = 30


def pair(exact=True, backend="numpy"):
    return ModelPair(Target(WEIGHTS, backend, exact), BlockDiffusion(DRAFTER, WEIGHTS, exact=True))


@pytest.mark.parametrize(
    ("exact", "backend", "budgets"), [(True, "numpy", [1, 12]), (False, "numba", [1, 3, 12, 40, 61])]
)
@pytest.mark.parametrize("sampler", [greedy, Seeded(0.5, seed=4)])
def test_a_replay_of_a_recorded_trace_has_the_rounds_of_a_live_run(sampler, exact, backend, budgets):
    """A trace's first root is the first token that was written, so the live run has it in its prompt."""
    models = pair(exact, backend)
    trace = record(models.drafter, models.target, PROMPTS, anchors=ANCHORS, sampler=sampler)
    results = replay(trace, "ddtree", budgets)
    assert sum(results.flagged.values()) == 0
    prompts = [[*prompt, int(first)] for prompt, first in zip(PROMPTS, trace.continuation[:, 0], strict=True)]
    for budget in budgets:
        live = speculative(
            Target(WEIGHTS, backend, exact),
            BlockDiffusion(DRAFTER, WEIGHTS, exact=True),
            prompts,
            budget=budget,
            max_new_tokens=ANCHORS - 1,
            sampler=sampler,
        )
        for s, sequence in enumerate(live.sequences):
            assert list(sequence.tokens) == trace.continuation[s, 1:].tolist()
            replayed = results.accept_lens[budget][s].tolist()
            assert len(replayed) > 5
            assert list(sequence.accept_lens[: len(replayed)]) == replayed
    assert results.tau[budgets[-1]] > 1.1  # the comparison is about something


def test_a_pair_answers_the_same_in_any_order():
    """Whatever was asked before, an answer has the bits of a fresh pair's."""
    used, text = pair(), np.array([5, 17, 33, 2, 60, 9], np.int32)
    asked = [("target", 3), ("target", 5), ("drafter", 6), ("drafter", 6), ("drafter", 2), ("target", 6), ("target", 6),
             ("drafter", 1), ("target", 1), ("target", 2), ("drafter", 3)]  # fmt: skip
    for name, length in asked:
        assert same_bits(getattr(used, name)(text[:length]), getattr(pair(), name)(text[:length])), (name, length)
    other = text[::-1].copy()
    assert same_bits(used.target(other), pair().target(other))
    assert same_bits(used.drafter(other), pair().drafter(other))


def test_recording_reads_each_token_once(monkeypatch):
    read = []
    plain_read, plain_verify = Target.read, Target.verify

    def counting_read(self, cache, b, token_T):
        read.extend(token_T.tolist())
        return plain_read(self, cache, b, token_T)

    def counting_verify(self, cache, trees):
        read.extend(trees.token_BN[0].tolist())
        return plain_verify(self, cache, trees)

    monkeypatch.setattr(Target, "read", counting_read)
    monkeypatch.setattr(Target, "verify", counting_verify)
    models = pair()
    trace = record(models.drafter, models.target, PROMPTS[:1], anchors=5)
    assert read == PROMPTS[0] + trace.continuation[0, :4].tolist()


def test_a_prefix_that_a_caller_changes_later_is_read_afresh():
    models, text = pair(), np.array([5, 17, 33], np.int32)
    models.target(text)
    text[0] = 6
    assert same_bits(models.target(text), pair().target(text))


def test_an_answer_that_failed_leaves_a_pair_as_it_was():
    models, text = pair(), np.array([5, 17, 33], np.int32)
    models.target(text[:2])
    with pytest.raises(ValueError):
        models.target(np.array([5, 17, TINY.vocab_size], np.int32))
    assert same_bits(models.drafter(text), pair().drafter(text))
