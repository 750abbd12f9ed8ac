"""`kdtree demo` as a person uses it."""

import os
import pty
import re
import subprocess

from drafter_fixtures import random_drafter, write_drafter
from model_fixtures import TINY, hf_config, hf_tensors, random_weights, save_checkpoint
from test_cli import K26, KDTREE, good, run, seen_by_terminal

from kdtree.cli.demo import PROMPT
from kdtree.shipped import tiny_prompts

# two threads on small matrices wait for each other where tests run side by side
CALM = {"OPENBLAS_NUM_THREADS": "1"}


def demo(*arguments):
    return good("demo", *arguments, **CALM)


def passes(said):
    return [int(number) for number in re.search(r"target passes +(\d+) +(\d+) +(\d+)", said).groups()]


def continuation(said):
    """Return the prompt and the rounds that were printed."""
    return said.split("gave\n\n")[1].split("\n\n      ")[0].removesuffix("\n").split("│")[:-1]


def test_demo_continues_python_with_the_shipped_pair():
    said = demo("--max-new-tokens", "48")
    assert said.startswith("model    the shipped tiny-target")
    assert "drafter  the shipped tiny-drafter, block diffusion, L = 15\n" in said
    assert "plain  chain of 15  ddtree, budget 64\n" in said
    prompt, *rounds = continuation(said)
    assert prompt.encode() == bytes(tiny_prompts()[PROMPT][1:].tolist())
    assert len("".join(rounds)) == 48
    plain, chain, fast = passes(said)
    assert fast == len(rounds) <= chain < plain == 48
    lengths = [int(length) for length in re.search(r"accepted lengths  ([\d ]+)\n", said).group(1).split()]
    assert (len(lengths), sum(lengths)) == (fast, 48)
    assert said.endswith("identical: yes\n")


def test_demo_continues_a_text_and_its_tokens_alike():
    text, tokens = (
        continuation(demo("--max-new-tokens", "8", *prompt))
        for prompt in (("--prompt", "if x:\n    "), ("--tokens", ",".join(map(str, [256, *b"if x:\n    "]))))
    )
    assert text == tokens
    assert text[0] == "if x:\n    "


def test_demo_samples_with_a_seed_and_is_greedy_at_0():
    first, other, greedy = (
        "".join(continuation(demo("--prompt", "", "--max-new-tokens", "24", "--temperature", t, "--seed", seed)))
        for t, seed in ((0.9, 1), (0.9, 2), (0, 1))
    )
    assert len({first, other, greedy}) == 3


def test_demo_writes_nothing_if_told_so_and_stops_where_positions_end():
    assert "tokens                     0            0                  0\n" in demo("--max-new-tokens", "0")
    assert "tokens                     2            2                  2\n" in demo("--prompt", "x" * 509)


def test_a_model_that_is_not_of_bytes_has_random_tokens_and_an_oracle():
    said = demo(K26, "--max-new-tokens", "24")
    assert "drafter  an oracle that knows the tokens and errs with probability 0.2, L = 7\n" in said
    plain, _, fast = passes(said)
    assert fast < plain == 24
    prompt, *rounds = continuation(said)
    assert len(prompt.split()) == 16
    assert sum(len(tokens.split()) for tokens in rounds) == 24
    assert said.endswith("identical: yes\n")


def test_demo_runs_a_model_and_a_drafter_of_ones_own(tmp_path):
    (tmp_path / "model").mkdir()
    save_checkpoint(tmp_path / "model", hf_config(TINY), hf_tensors(random_weights()))
    write_drafter(tmp_path / "drafter", random_drafter())
    said = demo(tmp_path / "model", "--drafter", tmp_path / "drafter", "--max-new-tokens", "12", "--budget", "8")
    assert f"model    {tmp_path / 'model'}\n" in said
    assert f"drafter  {tmp_path / 'drafter'}, L = " in said
    assert said.endswith("identical: yes\n")


def on_a_terminal(**variables):
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM", "COLORTERM")}
    command = [KDTREE, "demo", "--max-new-tokens", "24"]
    process = subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.DEVNULL, env={**environment, **CALM, **variables}
    )
    process.wait(timeout=120)
    assert process.returncode == 0
    return seen_by_terminal(ours, theirs).decode().replace("\r", "")


def test_a_terminal_gets_colours_unless_it_has_none_or_shall_not():
    plain = demo("--max-new-tokens", "24")
    coloured = on_a_terminal(TERM="xterm-256color", COLUMNS="20")
    without = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert "\x1b[2m" in coloured
    assert "│" not in coloured
    assert text_of(without) == text_of(plain).replace("│", "")
    assert text_of(on_a_terminal(TERM="xterm-256color", NO_COLOR="1")) == text_of(plain)


def text_of(said):
    return said.split("gave\n\n")[1].split("\n\n      ")[0]


def test_a_reader_of_the_demo_that_stops_early_gets_no_complaint():
    shell = f"{KDTREE} demo --max-new-tokens 24 | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_stderr_hides_the_bars_and_nothing_else():
    for command in ("demo --max-new-tokens 2", "sweep --budgets 1"):
        done = subprocess.run(
            ["bash", "-c", f"{KDTREE} {command} 2>&-"], stdout=subprocess.PIPE, text=True, timeout=120
        )
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) > 3


def test_a_seed_is_refused_before_anything_is_said():
    for temperature in ("0", "0.5"):
        done = run("demo", K26, "--seed", "-1", "--temperature", temperature)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("kdtree: --seed: got -1, needs 0 to")


def test_any_bytes_are_a_prompt_and_an_output_in_ascii_gets_the_whole_demo():
    prompt = b"\xff\x1b\xc3\xa9".decode(errors="surrogateescape")
    done = run("demo", "--max-new-tokens", "8", "--prompt", prompt, PYTHONIOENCODING="ascii", **CALM)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n\\xff\\x1b\\xe9|" in done.stdout
    assert done.stdout.endswith("identical: yes\n")
