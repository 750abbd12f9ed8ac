"""The scripts that train the shipped pair, in a size that takes seconds."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kdtree import Target, load_model
from kdtree.drafter_loading import load_drafter, parse_drafter_config
from kdtree.drafters.block_diffusion import BlockDiffusion
from kdtree.hf_config import parse_config
from kdtree.hf_tensors import parsed
from kdtree.shipped import DRAFTER, TARGET

TRAIN = Path(__file__).parents[1] / "data" / "train"


@pytest.fixture
def scripts(monkeypatch):
    """Make the scripts importable, as they are for each other."""
    monkeypatch.syspath_prepend(str(TRAIN))


@pytest.fixture
def mini(scripts, monkeypatch, tmp_path):
    """Return a size of a few steps, over a corpus of noise, whose files go to a temporary folder."""
    pytest.importorskip("torch")
    import corpus
    import drafter
    import target
    import training
    from sizes import SIZES, Stage

    noise_T = np.random.default_rng(0).integers(0, 257, 4000).astype(np.uint16)
    monkeypatch.setattr(training, "OUT", tmp_path)
    monkeypatch.setattr(training, "SAVE", 2)
    monkeypatch.setattr(drafter, "HELD_OUT", 8)
    for module in (target, drafter):
        monkeypatch.setattr(module, "load", lambda: corpus.Corpus(noise_T, noise_T[:600]))
    few = Stage(steps=4, batch=2, peak_lr=1e-3)
    return replace(SIZES["pilot"], name="mini", context=48, target_stage=few, drafter_stage=few, anchors=3, rollouts=24)


def test_the_shipped_pair_has_the_full_size(scripts):
    from sizes import SIZES

    assert parsed(TARGET / "config.json", parse_config) == SIZES["full"].target
    assert parsed(DRAFTER / "config.json", parse_drafter_config) == SIZES["full"].drafter


@pytest.mark.parametrize("folder", [TARGET, DRAFTER])
def test_the_cards_are_the_filled_in_templates(folder):
    """Line by line, a placeholder stands for anything."""
    template = re.escape((TRAIN / f"{folder.name}.card.md").read_text())
    assert re.fullmatch(re.sub(r"\\\{.*?\\\}", "(?s:.+?)", template), (folder / "README.md").read_text())


def test_the_manifest_lists_each_file_once_with_its_part(scripts):
    from corpus import MANIFEST, split

    lines = [re.fullmatch(r"([0-9a-f]{64}) ( *\d+) (train   |held out) (.+\.py)", line) for line in read(MANIFEST)]
    assert all(lines)
    paths = [line[4] for line in lines]
    assert len(set(paths)) == len(paths) > 1000
    assert all(split(line[4]) == line[3].strip() for line in lines)
    held_out = sum(int(line[2]) for line in lines if line[3] == "held out")
    assert 0.01 < held_out / sum(int(line[2]) for line in lines) < 0.1


def read(path):
    return path.read_text().splitlines()


def test_tests_are_never_held_out(scripts):
    from corpus import split

    assert {split(f"test/{i}.py") for i in range(200)} == {"train"}
    assert {split(f"a{i}.py") for i in range(200)} == {"train", "held out"}


@pytest.mark.parametrize(("change", "message"), [("missing", "a.py is missing"), ("other", "a.py differs")])
def test_a_library_that_is_not_the_pinned_one_is_refused(scripts, monkeypatch, tmp_path, change, message):
    import corpus

    library = tmp_path / "lib"
    library.mkdir()
    (library / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(corpus, "MANIFEST", tmp_path / "manifest.txt")
    corpus.MANIFEST.write_text(corpus.manifest_of(corpus.find(library)))
    assert corpus.collect(library) == {"a.py": b"x = 1\n"}
    (library / "a.py").write_text("x = 2\n")
    if change == "missing":
        (library / "a.py").unlink()
    with pytest.raises(ValueError, match=f"{message}.*CPython 3.13.0"):
        corpus.collect(library)


def test_prompts_are_pieces_of_held_out_files_that_do_not_overlap(scripts):
    from prompts import BEHIND, LENGTH, pick

    text = b"\n".join(b"line %d of a file" % i for i in range(200))
    held_out_T = np.concatenate([[256], np.frombuffer(text, np.uint8)]).astype(np.uint16)
    prompts = pick(held_out_T, 6)
    starts = sorted(text.index(prompt.encode()) for prompt in prompts)
    assert all(len(prompt) == LENGTH for prompt in prompts)
    assert np.diff(starts).min() >= LENGTH
    assert starts[-1] + LENGTH + BEHIND <= len(text)


def test_numpy_computes_what_was_trained(mini):
    import torch

    from export import save_target
    from target import train_target

    model = train_target(mini)
    save_target(model, Path(mini_folder(mini)) / "tiny-target")
    token_T = np.random.default_rng(1).integers(0, 258, 40).astype(np.int32)
    with torch.no_grad():
        logit_BTV, hidden_YBTD, _ = model(torch.from_numpy(token_T.astype(np.int64))[None])
    target = Target(load_model(Path(mini_folder(mini)) / "tiny-target"))
    stream_YTD = target.read(target.new_cache(1), 0, token_T)
    np.testing.assert_allclose(stream_YTD[1:-1], hidden_YBTD[:-1, 0].numpy(), atol=1e-5)
    np.testing.assert_allclose(stream_YTD[-1] @ target.weights.lm_head_VD.T, logit_BTV[0].numpy(), atol=1e-5)


def mini_folder(size):
    from training import folder_of

    return folder_of(size)


def test_the_drafter_that_was_trained_drafts_in_numpy(mini):
    from drafter import train_drafter
    from export import save_drafter, save_target
    from target import train_target

    folder = mini_folder(mini)
    save_target(train_target(mini), folder / "tiny-target")
    save_drafter(train_drafter(mini), 3, folder / "tiny-drafter")
    weights = load_model(folder / "tiny-target")
    target = Target(weights)
    session = BlockDiffusion(load_drafter(folder / "tiny-drafter"), weights).session()
    token_T = np.arange(20, dtype=np.int32)
    logprob_LV = session.propose(token_T, target.read(target.new_cache(1), 0, token_T[:-1]))
    assert logprob_LV.shape == (7, 258)
    np.testing.assert_allclose(np.exp(logprob_LV).sum(axis=1), 1, rtol=1e-5)


def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(mini, monkeypatch):
    import torch

    import target
    import training

    whole = target.train_target(mini).state_dict()
    (mini_folder(mini) / "target.checkpoint.pt").unlink()
    rate_of = training.learning_rate

    def stops_at_3(step, stage):
        if step == 3:
            raise KeyboardInterrupt
        return rate_of(step, stage)

    monkeypatch.setattr(training, "learning_rate", stops_at_3)
    with pytest.raises(KeyboardInterrupt):
        target.train_target(mini)
    monkeypatch.setattr(training, "learning_rate", rate_of)
    resumed = target.train_target(mini).state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_rollouts_are_the_targets_but_for_one_text_in_four(mini):
    import torch

    from rollouts import write_rollouts
    from target import load_target, train_target

    train_target(mini)
    noise_T = np.zeros(4000, np.uint16)
    rollouts = write_rollouts(load_target(mini), mini, noise_T)
    raw_B = (rollouts.token_BT == 0).all(dim=1)
    assert torch.equal(raw_B, torch.arange(24) % 20 % 4 == 0)
    assert (rollouts.token_BT[:, :12] == 0).all()
