"""The command line as a person uses it: a process, its output, its exit status."""

import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from kdtree import Trace, cli, kdtr

KDTREE = Path(sys.executable).with_name("kdtree")
PILOT = Path(__file__).parents[1] / "data" / "traces" / "pilot_t05.kdtr"


def run(*arguments, cwd=None, **variables):
    command, env = [KDTREE, *map(str, arguments)], {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=120)


def good(*arguments, cwd=None, **variables):
    done = run(*arguments, cwd=cwd, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_sweep_prints_a_row_a_budget_and_a_column_a_builder():
    table = good("sweep", PILOT, "--budgets", "4,64,256").splitlines()
    assert table[0] == f"{PILOT}: 24 sequences x 96 anchors, L = 7, K = 64; seeded sampling, T = 0.5"
    assert table[1].split() == ["budget", "chain", "ddtree"]
    assert len({len(line.rstrip("*")) for line in table[1:5]}) == 1  # aligned
    assert [line.split()[0] for line in table[2:5]] == ["4", "64", "256"]
    assert table[3].split()[1] == "2.7985"
    assert "4.1361 [3.78, 4.63]" in table[3]
    assert table[4].endswith("*")
    assert "2 of 473 (ddtree, 256)" in table[-1]


def test_sweep_and_tree_take_the_shipped_trace_and_sweep_says_which():
    trace = Trace.shipped("tiny_t05")
    first = good("sweep", "--budgets", "64").splitlines()[0]
    assert first.startswith(f"tiny_t05: {len(trace.topk_ids)} sequences x ")
    assert first.endswith(f", L = 15, K = {trace.K}; {trace.metadata['decoding']}")
    assert good("tree", "--anchor", 5) == good("tree", PILOT.with_name("tiny_t05.kdtr"), "--anchor", 5)


def test_sweep_shows_metadata_that_could_steer_a_terminal_as_escapes(tmp_path):
    arrays, metadata = kdtr.load(PILOT)
    kdtr.save(tmp_path / "t.kdtr", arrays, {**metadata, "decoding": "T =\n\x1b[31m 1"})
    heading = good("sweep", "t.kdtr", "--budgets", "1", cwd=tmp_path).splitlines()[0]
    assert heading == "t.kdtr: 24 sequences x 96 anchors, L = 7, K = 64; T = \\x1b[31m 1"


def test_sweep_writes_pictures_and_tables(tmp_path):
    names = ["s.png", "s.svg", "s.pdf", "s.json", "s.csv"]
    said = good("sweep", "--budgets", "1,2..5", *[part for name in names for part in ("--out", name)], cwd=tmp_path)
    assert [line for line in said.splitlines() if "wrote" in line] == [f"wrote {name}" for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "s.pdf").read_bytes().startswith(b"%PDF")
    assert ElementTree.parse(tmp_path / "s.svg").getroot().tag.endswith("svg")
    records = json.loads((tmp_path / "s.json").read_text())
    assert [record["budget"] for record in records["ddtree"]] == [1, 2, 3, 4, 5]
    with (tmp_path / "s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    for row in rows:
        record = next(r for r in records[row["builder"]] if str(r["budget"]) == row["budget"])
        assert {"builder": row["builder"], **{key: str(value) for key, value in record.items()}} == row


def test_sweep_takes_a_trace_of_ones_own(tmp_path):
    np.savez(
        tmp_path / "mine.npz",
        prompt=np.zeros((1, 1), int),
        continuation=np.array([[0, 1, 1, 0]]),
        topk_ids=np.ones((1, 4, 1, 1), int),
        topk_log_probs=np.zeros((1, 4, 1, 1), np.float32),
    )
    table = good("sweep", "mine.npz", "--builders", "chain", "--budgets", "1", cwd=tmp_path)
    assert "mine.npz: 1 sequences x 4 anchors, L = 1, K = 1\n" in table
    assert "1.5000" in table  # a round at 0 finds a 1, a round at 2 does not


def test_a_narrow_terminal_loses_nothing():
    names = "chain,ddtree,accum_logp,accum_logp:width=8"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "40"}
    command = [KDTREE, "sweep", "--builders", names, "--budgets", "1,64"]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment, timeout=120)
    shown = seen_by_terminal(ours, theirs)
    assert done.returncode == 0
    assert shown.decode().replace("\r", "") == good("sweep", "--builders", names, "--budgets", "1,64")


def test_files_are_written_though_nobody_reads_the_table(tmp_path):
    shell = f"{KDTREE} sweep --budgets 1 --out s.json | true"
    subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, timeout=120)
    assert json.loads((tmp_path / "s.json").read_text())


def test_an_interrupt_says_so_and_leaves_no_file(tmp_path):
    command = [KDTREE, "sweep", "--builders", "accum_logp", "--budgets", "1..3000", "--out", "s.json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "kdtree: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_a_closed_output_is_no_traceback():
    done = subprocess.run(["bash", "-c", f"{KDTREE} info >&-"], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "kdtree", "--help"], capture_output=True, text=True, timeout=120)
    assert "sweep" in done.stdout


def test_workers_change_no_figure():
    assert good("sweep", "--budgets", "7,64", "--workers", "2") == good("sweep", "--budgets", "7,64")


def test_tree_draws_in_the_terminal_with_the_accepted_path():
    drawn = good("tree", "--sequence", 0, "--anchor", 5, "--budget", 8)
    assert len(drawn.splitlines()) == 1 + 9 + 1
    assert "✓" in drawn
    assert "tokens, the bonus token included" in drawn


def test_tree_writes_files(tmp_path):
    for name in ("t.svg", "t.png", "t.pdf", "t.txt"):
        assert good("tree", "--budget", "64", "--out", name, cwd=tmp_path) == f"wrote {name}\n"
    assert ElementTree.parse(tmp_path / "t.svg").getroot().tag.endswith("svg")
    assert len((tmp_path / "t.txt").read_text(encoding="utf-8").splitlines()) == 66


def test_info_names_versions_backends_ops_traces_and_models():
    told = good("info")
    assert f"numpy {np.__version__}" in told
    assert "tree_build" in told
    assert "pilot_t05  24 sequences x 96 anchors, L = 7, K = 64; seeded sampling, T = 0.5\n" in told
    assert re.findall(r"^  (\w+) +\d+ sequences", told, re.MULTILINE) == Trace.shipped_names()
    assert "tiny-target   4.1 M parameters, vocabulary 258, 512 positions\n" in told
    assert "tiny-drafter  1.9 M parameters, L = 15\n" in told


def test_kdtr_lists_checks_and_converts(tmp_path):
    np.savez(tmp_path / "x.npz", depth=np.arange(3, dtype=np.int16))
    assert good("kdtr", "convert", "x.npz", "x.kdtr", "--widen", cwd=tmp_path) == "depth: int16 widened\nwrote x.kdtr\n"
    assert "depth  i32              12 B  [3]\n1 tensors, 140 B, version 1" in good(
        "kdtr", "list", "x.kdtr", cwd=tmp_path
    )
    assert good("kdtr", "check", "x.kdtr", cwd=tmp_path) == "x.kdtr: good, 1 tensors\n"


def test_help_and_no_command_explain_themselves():
    assert "sweep" in good("--help")
    assert "--budgets" in good("sweep", "--help")
    assert "sweep" in run().stdout


K26 = str(PILOT.parents[1] / "golden" / "hf" / "k26")
BAD = [
    (["sweep", "--budgets", "x"], "--budgets: got 'x', needs a number or a range such as 4..256"),
    (["sweep", "--budgets", ""], "--budgets: got ''"),
    (["sweep", "--budgets", "-3"], "--budgets: got '-3'"),
    (["sweep", "--budgets", "9..3"], "--budgets: got '9..3', needs a range that ascends"),
    (["sweep", "--budgets", "1..99999999999"], "--budgets: got 1..99999999999, needs at most"),
    (["sweep", "--builders", "chain,oak"], "builder: got 'oak', needs one of accum_logp, chain, ddtree"),
    (["sweep", "--out", "s.gif"], "--out: got s.gif, needs a suffix of .png .svg"),
    (["sweep", "--out", "no/such/s.png"], "--out: got no/such/s.png, needs the folder no/such to exist"),
    (["sweep", "--workers", "0"], "workers: got 0"),
    (["sweep", "--workers", "two"], "'--workers': got 'two', needs a whole number"),
    (["sweep", "none.kdtr"], "none.kdtr"),
    (["sweep", "empty.kdtr"], "empty.kdtr: the file has 0 bytes"),
    (["sweep", "text.npz"], "text.npz: not a readable .npz file"),
    (["sweep", "--out", "folder.png"], "--out: got folder.png, needs a file"),
    (["sweep", "--budgets", "9" * 5000], "--budgets: got '9999"),
    (["sweep", "--budgets", "0..5000"], "--budgets: got 0..5000, needs at most 1048576, and 4096 of them"),
    (["tree", "--budget", "2000000000"], "--budget: got 2000000000, needs at most 1048576"),
    (["tree", "--out", "folder.png"], "--out: got folder.png, needs a file"),
    (["sweep", "text.txt"], "text.txt: got suffix '.txt', needs .kdtr or .npz"),
    (["sweep", "."], "got suffix ''"),
    (["sweep", "--colour"], "No such option: --colour"),
    (["tree", "--sequence", "99"], "sequence: got 99, needs 0 to "),
    (["tree", "--anchor", "-1"], "anchor: got -1, needs 0 to "),
    (["tree", "--budget", "-1"], "budget: got -1"),
    (["tree", "--builder", "oak"], "builder: got 'oak'"),
    (["tree", "--out", "t.gif"], "--out: got t.gif"),
    (["tree", "--out", "no/t.svg"], "no"),
    (["kdtr", "list", "text.txt"], "text.txt: "),
    (["kdtr", "check", "empty.kdtr"], "empty.kdtr: the file has 0 bytes"),
    (["kdtr", "check"], "Missing argument"),
    (["kdtr", "convert", "text.txt", "y.kdtr"], "text.txt: the name must end in .npz or .safetensors"),
    (["kdtr", "convert", "text.npz", "y.kdtr"], "text.npz: not a readable .npz file"),
    (["demo", "--tokens", "1,x"], "--tokens: got 'x', needs token ids from 0 to 257"),
    (["demo", "--tokens", "258"], "--tokens: got '258'"),
    (["demo", "--tokens", ""], "--tokens: got '', needs token ids"),
    (["demo", "--tokens", "9" * 5000], "--tokens: got '9999"),
    (["demo", "--tokens", "1" + ",1" * 511], "--tokens: got 512 tokens, needs 1 to 511"),
    (["demo", "--prompt", "x" * 511], "--prompt: got 512 tokens, needs 1 to 511"),
    (["demo", "--prompt", "x", "--tokens", "1"], "--prompt, --tokens: got both, needs one of them"),
    (["demo", K26, "--prompt", "x"], "--prompt: got text, needs --tokens: config.json does not say"),
    (["demo", "--max-new-tokens", "-1"], "--max-new-tokens: got -1, needs 0 to"),
    (["demo", "--budget", "-1"], "--budget: got -1, needs 0 to"),
    (["demo", "--temperature", "-1"], "temperature: got -1.0"),
    (["demo", "no-model"], "no-model"),
    (["demo", "--budget", "100000"], "--budget: got 100000, needs at most 4096"),
    (["demo", "--drafter", "no-drafter"], "no-drafter"),
    (["grow"], "No such command 'grow'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments)[-40:] for arguments, _ in BAD])
def test_an_error_is_one_line_and_status_2_and_leaves_no_file(arguments, message, tmp_path, monkeypatch, capfd):
    (tmp_path / "empty.kdtr").touch()
    (tmp_path / "folder.png").mkdir()
    for name in ("text.npz", "text.txt"):
        (tmp_path / name).write_text("hello")
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("kdtree: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert sorted(tmp_path.iterdir()) == before


def test_an_error_of_the_process_has_no_traceback():
    done = run("sweep", "none.kdtr")
    assert done.returncode == 2
    assert done.stderr == "kdtree: [Errno 2] No such file or directory: 'none.kdtr'\n"


def test_a_reader_that_stops_early_gets_no_complaint():
    shell = f"{KDTREE} tree --budget 256 | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_bars_show_on_a_terminal_only():
    """Give the command a terminal for stderr and look for what a bar leaves there."""
    ours, theirs = pty.openpty()
    done = subprocess.run([KDTREE, "sweep", "--budgets", "1"], stdout=subprocess.PIPE, stderr=theirs, timeout=120)
    shown = seen_by_terminal(ours, theirs)
    assert done.returncode == 0
    assert b"replay ddtree" in shown


def seen_by_terminal(ours, theirs):
    """Close a terminal and return all that was written to it."""
    os.close(theirs)
    shown = b""
    while chunk := read_or_nothing(ours):
        shown += chunk
    os.close(ours)
    return shown


def read_or_nothing(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says EIO where the other end of a terminal is closed
        return b""


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, capsys):
    """The picture fails after the table was printed: the old picture is still there."""
    old = tmp_path / "s.png"
    old.write_bytes(b"old")

    def broken(*_):
        raise ValueError("no ink")

    monkeypatch.setattr("kdtree.plot.accept_curve", broken)
    assert cli.run(["sweep", "--budgets", "1", "--out", str(old)]) == 2
    assert "kdtree: no ink" in capsys.readouterr().err
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("s.png", b"old")]


def test_a_converted_trace_can_be_swept(tmp_path):
    trace = Trace.shipped()
    names = ("prompt", "continuation", "topk_ids", "topk_log_probs")
    np.savez(tmp_path / "t.npz", **{name: getattr(trace, name)[:2] for name in names})
    good("kdtr", "convert", "t.npz", "t.kdtr", cwd=tmp_path)
    assert set(kdtr.load(tmp_path / "t.kdtr").tensors) == set(names)
    assert "t.kdtr: 2 sequences" in good("sweep", "t.kdtr", "--budgets", "1", cwd=tmp_path)
