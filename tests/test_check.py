"""kdtree.testing: each property finds the fault that it is there for, and shows it small."""

import re

import numpy as np
import pytest
from test_cli import run
from test_ops import run as run_without
from test_own_source import ours
from test_project import ROOT

from kdtree import ops
from kdtree.testing import ARGUMENTS, Kernel, check, outcomes, properties
from kdtree.testing.properties import PROPERTIES

PAGE = (ROOT / "docs" / "test-your-kernel.md").read_text()
SCRIPT = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def failing(kernel, **options):
    """Return the property that fails, and what is said of it."""
    *_, last = outcomes(kernel, **options)
    assert last.failure
    return last.property, last.failure


@pytest.mark.parametrize("op", ARGUMENTS)
def test_the_truth_is_accepted_as_a_function(op):
    check(op, ops.all_ops()[op], examples=5)


class Restless:
    """A product whose bits change from call to call, within the error budget."""

    calls = 0

    def __call__(self, x_TI, weight_OI):
        self.calls += 1
        y_TO = ops.linear(x_TI, weight_OI)
        return np.where(y_TO == 0, y_TO, np.nextafter(y_TO, y_TO.dtype.type(np.inf))) if self.calls % 2 else y_TO


def greedy_with_its_input(token_BN, first_child_BN, next_sibling_BN, node_count_B, target_token_BN):
    accepted = ops.accept_greedy(token_BN, first_child_BN, next_sibling_BN, node_count_B, target_token_BN)
    target_token_BN[...] = 0
    return accepted


def blind_to_strides(token_T, weight_VD):
    raw = np.lib.stride_tricks.as_strided(token_T, token_T.shape, (token_T.itemsize,))
    return ops.embed(np.clip(raw, 0, len(weight_VD) - 1), weight_VD)


def beside_its_output(parent_BN, node_count_B):
    visible_BNN = np.empty((*parent_BN.shape, parent_BN.shape[1]), bool)
    visible_BNN[...] = ops.visibility(parent_BN, node_count_B)
    np.lib.stride_tricks.as_strided(visible_BNN.reshape(-1), (visible_BNN.size + 1,))[-1] = 1
    return visible_BNN


@pytest.mark.parametrize(
    ("op", "function", "property_", "said"),
    [
        (
            "visibility",
            lambda *trees: ops.visibility(*trees) | True,
            "truth",
            r"visibility\[0, 0, 1\]: got True, needs Fal",
        ),
        ("retrieve", lambda *trees: ops.retrieve(*trees)[0], "truth", "retrieve: got 1 arrays, needs 2"),
        (
            "retrieve",
            lambda *trees: [a.astype(int) for a in ops.retrieve(*trees)],
            "truth",
            "got dtype int64, needs int32",
        ),
        ("rms_norm", lambda x_TD, w_D, eps: ops.rms_norm(x_TD, w_D, 3 * eps), "truth", r"rms_norm\[0, 0\]: got "),
        ("swiglu", lambda a, b: np.where(a == 2, a.dtype.type(np.nan), ops.swiglu(a, b)), "truth", r"got nan, needs "),
        ("linear", lambda x_TI, w_OI: (x_TI @ w_OI.T)[:, :8], "truth", r"got shape \(0, 8\), needs \(0, 9\)"),
        ("linear", Restless(), "repeats", r"linear\[0, 0\]: got "),
        ("visibility", beside_its_output, "written", "writes behind the last element"),
        ("accept_greedy", greedy_with_its_input, "inputs", r"target_token_BN\[0, 0\]: got 0, needs "),
        ("embed", blind_to_strides, "layouts", r"embed\[1, 0\]: got "),
    ],
)
def test_a_planted_fault_is_found_by_its_property(op, function, property_, said):
    found, message = failing(Kernel(op, function))
    assert found == property_
    assert message.startswith(f"{op}, {property_}: ")
    assert re.search(said, message), message


def test_an_element_that_is_not_written_is_found_whatever_was_there():
    def first_child_alone(parent_BN, node_count_B):
        links = ops.retrieve.on("numba")(parent_BN, node_count_B)
        next_sibling_BN = np.empty(parent_BN.shape, np.int32)
        next_sibling_BN[:, 1:] = links.next_sibling_BN[:, 1:]
        return links.first_child_BN, next_sibling_BN

    with pytest.raises(AssertionError, match=r"retrieve\[0, 0\]: got 1515870810, needs "):
        properties.written(Kernel("retrieve", first_child_alone), [np.array([[-1, 0]]), np.array([2])], None)


def test_a_backend_that_takes_a_bad_tree_or_lets_rows_meet_is_found():
    def unchecked(parent_BN, node_count_B):
        counts_B = np.clip(node_count_B, 1, np.shape(parent_BN)[1])
        return ops.retrieve(np.maximum(parent_BN, -1), counts_B)

    def mixed(x_TI, weight_OI):
        y_TO = ops.linear.on("numba")(x_TI, weight_OI)
        return y_TO + y_TO * np.finfo(y_TO.dtype).eps if len(x_TI) > 2 else y_TO

    assert failing(Kernel("retrieve", unchecked, backend="numba"), without=["layouts"])[0] == "refusals"
    assert failing(Kernel("linear", mixed, backend="numba"))[0] == "alone"


def test_an_error_of_the_kernel_is_a_failure_that_names_it():
    def absent(parent_BN, node_count_B):
        raise KeyError("no such kernel")

    assert "  KeyError: 'no such kernel'\n" in failing(Kernel("retrieve", absent))[1]


def test_the_smallest_tree_with_a_second_word_is_found():
    def one_word(parent_BN, node_count_B):
        packed = ops.visibility_packed(parent_BN, node_count_B)
        packed[:, :, 1:] = 0
        return packed

    assert "node_count_B = array([65], dtype=int32)" in failing(Kernel("visibility_packed", one_word))[1]


def test_the_same_seed_finds_the_same(capsys):
    kernel = Kernel("retrieve", lambda *trees: ops.retrieve(*trees)[::-1])
    assert failing(kernel, seed=3) == failing(kernel, seed=3)


def test_the_example_of_the_page_prints_what_the_page_shows(capsys):
    exec(SCRIPT, {})
    assert capsys.readouterr().out == SHOWN[0]


def test_the_command_of_the_page_finds_the_missing_barrier(tmp_path):
    done = run("check", "retrieve", "--source", ours("retrieve", tmp_path, ("  __syncthreads();\n", "")))
    assert done.returncode == 1
    assert done.stderr == ""
    assert done.stdout.partition("\n\n")[2] == SHOWN[1]


def test_the_command_checks_every_op_of_a_backend():
    done = run("check", "--backend", "numba", "--examples", "3")
    assert (done.returncode, done.stderr) == (0, "")
    header, _, table, end = re.fullmatch(r"(.*?)\n\n(.*?)\n(.*)\n\n(.*)\n", done.stdout, re.DOTALL).groups()
    assert header.startswith("numba: numba ")
    assert [row.split()[0] for row in table.splitlines()] == [
        name for name, op in ops.all_ops().items() if "numba" in op.backends()
    ]
    assert re.fullmatch(r"(\d+) of \1 properties hold, \d+ examples tried", end)


def test_an_op_that_is_named_twice_is_checked_once():
    done = run("check", "retrieve", "retrieve", "--backend", "numba", "--examples", "2")
    assert done.stdout.endswith("\n6 of 6 properties hold, 12 examples tried\n")


def test_the_page_lists_the_properties():
    assert re.findall(r"^\| (\w+) \| .* \| .* \|$", PAGE.partition("## What is checked")[2], re.MULTILINE)[1:] == [
        property_.__name__ for property_ in PROPERTIES
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["oak"], "op: got 'oak', needs one of tree_build, "),
        (["--backend", "tpu"], "backend: got 'tpu', needs one of numpy, numba, host, cuda"),
        (["--backend", "numpy"], "--backend: got numpy, which is the truth; needs host, cuda or numba"),
        (["--examples", "0"], "--examples: got 0, needs 1 or more"),
        (["--seed", "-1"], "seed: got -1"),
        (["top_k", "--backend", "numba"], "top_k has no numba kernel; it runs on numpy, host, cuda"),
        (["retrieve", "--source", "none.cu"], "none.cu"),
        (["--source", "none.cu"], "op: got 'none', needs one of"),
        (["retrieve", "moe", "--source", "none.cu"], "--source: got 2 ops, needs one"),
        (["retrieve", "--backend", "numba", "--source", "none.cu"], "source: got "),
    ],
)
def test_the_command_refuses_in_a_line(arguments, message, tmp_path):
    done = run("check", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("kdtree: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_hypothesis_the_command_names_the_remedy():
    done = run_without("from kdtree.cli import run\nrun(['check'])", "hypothesis")
    assert done.stderr == "kdtree: kdtree check: blocked: hypothesis; pip install 'kdtree-lab[check]'\n"


def test_an_unknown_op_or_property_is_refused():
    with pytest.raises(ValueError, match="op: got 'oak', needs one of tree_build"):
        check("oak", ops.retrieve)
    with pytest.raises(ValueError, match="without: got 'speed', needs some of truth, inputs"):
        check("retrieve", ops.retrieve, without=["speed"])
    with pytest.raises(ValueError, match="examples: got 0, needs 1 or more"):
        check("retrieve", ops.retrieve, examples=0)


def test_tensors_of_pytorch_go_in_and_come_out():
    torch = pytest.importorskip("torch")

    def linear(x_TI, weight_OI):
        return x_TI @ weight_OI.T

    def visibility(parent_BN, node_count_B):
        assert isinstance(parent_BN, torch.Tensor)
        return torch.from_numpy(ops.visibility(parent_BN.numpy(), node_count_B.numpy()))

    check("linear", linear, torch.from_numpy, without=["repeats"])
    check("visibility", visibility, torch.from_numpy)
    wrong = Kernel("visibility", lambda *trees: visibility(*trees) & False, torch.from_numpy)
    assert failing(wrong)[0] == "truth"
