"""Every single mistake that people make in this model fails at least one test."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITNESSES = ("test_golden_model.py", "test_model_ops.py")

MISTAKES = {  # name: file, what is there, what a mistaken hand would write
    "the latent norms take the config's eps": ("reference/transformer.py", "LATENT_EPS = 1e-6", "LATENT_EPS = 1e-5"),
    "pairs interleaved the other way": (
        "reference/transformer.py",
        "rope_scale, config.rope_interleave)",
        "rope_scale, not config.rope_interleave)",
    ),
    "kv_b_proj split globally, not by head": (
        "kdtree/loading.py",
        "np.ascontiguousarray(kv_b_HOC[:, :U])",
        "np.ascontiguousarray(kv_b_HOC.reshape(-1, C)[: H * U].reshape(H, U, C))",
    ),
    "no mscale in the softmax scale": ("reference/config.py", "self.mscale_all_dim) ** 2 if", "0) ** 2 if"),
    "no attention factor on cos and sin": (
        "reference/transformer.py",
        "config.yarn.rope_scale if config.yarn else 1.0",
        "1.0",
    ),
    "YaRN ignored": ("reference/rope.py", "if yarn is None:", "if True:"),
    "truncate ignored": ("reference/rope.py", "if yarn.truncate:", "if False:"),
    "scale of the nope part alone": (
        "reference/config.py",
        "(self.qk_nope_head_dim + self.qk_rope_head_dim) ** -0.5",
        "self.qk_nope_head_dim ** -0.5",
    ),
    "no bias in the selection": ("reference/route.py", "score_TE + bias_E", "score_TE"),
    "biased weights": (
        "reference/route.py",
        "take_along_axis(score_TE, expert_TK",
        "take_along_axis(choice_TE, expert_TK",
    ),
    "no group limit": (
        "reference/route.py",
        "keep_groups(score_TE + bias_E, n_group, topk_group)",
        "score_TE + bias_E",
    ),
    "a group is worth its best expert": ("reference/route.py", "[:, :, -2:].sum(axis=2)", "[:, :, -1]"),
    "refused groups filled with 0": ("reference/route.py", "choice_TGJ, -np.inf)", "choice_TGJ, 0.0)"),
    "weights not renormalised": ("reference/route.py", "if normalise:", "if False:"),
    "routed scale left out": (
        "reference/route.py",
        "weight_TK * weight_TK.dtype.type(scale)",
        "weight_TK",
    ),
    "softmax instead of sigmoid": ("reference/route.py", 'if scoring == "softmax":', "if True:"),
    "tree positions by slot": ("kdtree/target.py", "+ trees.depth_BN", "+ np.arange(trees.token_BN.shape[1])[None]"),
    "a causal mask": (
        "kdtree/target.py",
        'ops.visibility.on("numba")(trees.parent_BN, trees.node_count_B)',
        "np.tri(trees.token_BN.shape[1], dtype=bool)[None].repeat(len(trees.token_BN), 0)",
    ),
    "a slot sees its parent and itself alone": (
        "kernels/numba/visibility.py",
        "visible_BNN[b, i] = visible_BNN[b, parent]",
        "visible_BNN[b, i, : i + 1] = np.arange(i + 1) == parent",
    ),
    "compaction by accepted count": (
        "reference/compact_cache.py",
        "P + path_BN[b, :length]]",
        "P + np.arange(length)]",
    ),
    "no shared expert": ("reference/transformer.py", "if w.shared else y_TD", "if False else y_TD"),
    "the last hidden stream before the final norm": (
        "reference/transformer.py",
        "hidden[-1] = ops.rms_norm(x_TD, weights.norm, config.rms_norm_eps)",
        "hidden[-1] = x_TD",
    ),
}


def copy_project(folder):
    """Copy what the witnesses need; the data is linked."""
    for name in ("kdtree", "reference", "kernels", "tests"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "data").symlink_to(ROOT / "data")
    shutil.copy(ROOT / "pyproject.toml", folder)


def witness(folder):
    """Return the exit status of the witnesses in this copy: 0 if they pass, 1 if one fails."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "HYPOTHESIS_PROFILE": "kdtree-dev",
        "NUMBA_DISABLE_JIT": "1",  # a copy's kernels would be compiled anew
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", "not host", *WITNESSES]
    return subprocess.run(command, cwd=folder / "tests", env=environment, capture_output=True, text=True).returncode


def test_the_witnesses_pass_on_an_unchanged_copy(tmp_path):
    copy_project(tmp_path)
    assert witness(tmp_path) == 0


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_single_mistake_fails_a_test(mistake, tmp_path):
    copy_project(tmp_path)
    file, right, wrong = MISTAKES[mistake]
    source = (tmp_path / file).read_text()
    assert source.count(right) == 1
    (tmp_path / file).write_text(source.replace(right, wrong))
    assert witness(tmp_path) == 1
