"""`kdtree demo` as a person uses it."""

import re

from drafter_fixtures import random_drafter, write_drafter
from model_fixtures import TINY, hf_config, hf_tensors, random_weights, save_checkpoint
from test_cli import good


def test_demo_decodes_twice_and_says_whether_the_tokens_are_the_same():
    said = good("demo", "--max-new-tokens", "24")
    assert "a tiny one with random weights" in said
    assert "an oracle that knows the tokens and errs with probability 0.2" in said
    plain, fast = re.search(r"target passes +(\d+) +(\d+)", said).groups()
    assert int(fast) < int(plain) == 24
    assert said.endswith("identical: yes\n")


def test_demo_samples_with_a_seed_and_takes_a_prompt():
    first, again, other = (
        good("demo", "--temperature", "0.8", "--seed", seed, "--prompt", "5,17") for seed in (1, 1, 2)
    )

    def tokens(said):
        return re.search(r"tokens {4,}([\d ]+) [.]", said).group(1)

    assert tokens(first) == tokens(again) != tokens(other)


def test_demo_runs_a_model_and_a_drafter_of_ones_own(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "drafter").mkdir()
    save_checkpoint(tmp_path / "model", hf_config(TINY), hf_tensors(random_weights()))
    write_drafter(tmp_path / "drafter", random_drafter())
    said = good(
        "demo", tmp_path / "model", "--drafter", tmp_path / "drafter", "--max-new-tokens", "12", "--budget", "8"
    )
    assert f"drafter  {tmp_path / 'drafter'}" in said
    assert said.endswith("identical: yes\n")
