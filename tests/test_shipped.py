"""The pair of models, the prompts and the traces that come with the project."""

import re
from pathlib import Path

import numpy as np
import pytest

from kdtree import Seeded, Trace, autoregressive, greedy, replay, speculative
from kdtree.shipped import DRAFTER, TARGET, tiny_pair, tiny_prompts

DATA = Path(__file__).parents[1] / "data"
TRACES = [name for name in Trace.shipped_names() if name.startswith("tiny_")]
BUDGETS = (15, 64, 256)


def sampler_of(trace):
    """Return the sampler that the metadata names."""
    seeded = re.fullmatch(r"seeded sampling, T = ([\d.]+), seed (\d+)", trace.metadata["decoding"])
    return Seeded(float(seeded[1]), int(seeded[2])) if seeded else greedy


def test_the_shipped_data_stays_small():
    files = [path for path in DATA.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 40e6
    assert sum((folder / "model.safetensors").stat().st_size for folder in (TARGET, DRAFTER)) < 12e6


def test_the_prompts_are_those_of_the_traces():
    prompts = tiny_prompts()
    assert len(prompts) == 48
    for name in TRACES:
        trace = Trace.shipped(name)
        for recorded, prompt, length in zip(trace.prompt, prompts, trace.prompt_len, strict=False):
            np.testing.assert_array_equal(recorded[:length], prompt)


@pytest.mark.parametrize("name", TRACES)
def test_no_round_of_a_shipped_trace_is_flagged(name):
    assert set(replay(Trace.shipped(name), "ddtree", range(1, 257)).flagged.values()) == {0}


def test_there_is_a_trace_for_each_temperature():
    assert {name: sampler_of(Trace.shipped(name)) for name in TRACES} == {
        "tiny_t00": greedy,
        "tiny_t05": Seeded(0.5, 0),
        "tiny_t07": Seeded(0.7, 0),
        "tiny_t10": Seeded(1.0, 0),
    }


def live_rounds(target, drafter, trace, sequence, budget, tokens):
    """Decode behind the first recorded token; return the tokens and the rounds that the length did not cut short."""
    prompt = [*trace.prompt[sequence, : trace.prompt_len[sequence]], trace.continuation[sequence, 0]]
    done = speculative(
        target, drafter, [prompt], budget=budget, max_new_tokens=tokens, sampler=sampler_of(trace)
    ).sequences[0]
    return done.tokens, done.accept_lens[:-1]


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("budget", [16, 64])
def test_a_live_run_of_the_shipped_pair_has_the_rounds_of_its_traces(name, budget):
    """In numpy's exact mode; data/train/live.py does it for every sequence and more budgets."""
    trace = Trace.shipped(name)
    target, drafter = tiny_pair(backend="numpy", exact=True)
    recorded = replay(trace, "ddtree", [budget]).accept_lens[budget]
    for sequence in (0, 5):
        tokens, rounds = live_rounds(target, drafter, trace, sequence, budget, 24)
        assert tokens == tuple(trace.continuation[sequence, 1:25])
        assert len(rounds) > 1
        assert rounds == tuple(recorded[sequence][: len(rounds)])


def test_the_shipped_pair_decodes_faster_in_passes_and_to_the_same_tokens():
    target, drafter = tiny_pair()
    prompts = tiny_prompts()[:4]
    plain = autoregressive(target, prompts, max_new_tokens=48, sampler=Seeded(0.5, 1))
    fast = speculative(target, drafter, prompts, budget=64, max_new_tokens=48, sampler=Seeded(0.5, 1))
    assert [s.tokens for s in fast.sequences] == [s.tokens for s in plain.sequences]
    assert fast.tau > 3


def test_the_cards_state_what_the_traces_give():
    card = (DRAFTER / "README.md").read_text().split("shipped traces")[1]
    for name in TRACES:
        row = next(line for line in card.splitlines() if line.startswith(f"| T = {int(name[-2:]) / 10:g} |"))
        stated = [float(cell.split()[0]) for cell in row.split("|")[2:-1]]
        trace = Trace.shipped(name)
        trees = replay(trace, "ddtree", [4, 15, 16, 32, 64, 128, 256])
        measured = [replay(trace, "chain", [15]).tau[15], *trees.tau.values()]
        np.testing.assert_allclose(stated, measured, atol=0.0051)
