"""A run that is resumed elsewhere, later or after damage: the same training, or an error."""

from __future__ import annotations

import json
import shutil
import types
from pathlib import Path

import pytest
import torch

from nmt.cli.train import main
from nmt.data import prepare
from nmt.data.report import Finding
from nmt.data.segmenters import bpe
from nmt.errors import MachineError
from nmt.runtime import files
from nmt.store import checkpoint as checkpoint_module
from nmt.store.checkpoint import Checkpoint
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.results import read_summary, write_summary
from nmt.training import start
from nmt.training.trainer import Trainer
from tests.run_cases import content, flip, resign
from tests.test_resume import call_after, difference, result, terminate_after
from tests.toy import toy_corpus, toy_recipe

KEYS = {
    "segment": {"kind": "fastbpe", "merges": 12},
    "train": {"validate_every": 2, "max_validations": 4, "log_every": 2, "keep": 3},
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return a folder with a corpus, a recipe, a finished run and a stopped run."""
    folder = tmp_path_factory.mktemp("stopped")
    toy_corpus(folder, {"train": 80, "dev": 4, "test": 4})
    recipe = str(toy_recipe(folder, KEYS))
    assert main([recipe, f"out={folder / 'uninterrupted'}"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        terminate_after(patch, Trainer, "update", 7)
        assert main([recipe]) == 143
    return folder


@pytest.fixture
def here(stopped, tmp_path) -> Path:
    """Return a copy of that folder for one test, with the copy's paths in the recipe."""
    shutil.copytree(stopped, tmp_path / "copy")
    toy_recipe(tmp_path / "copy", KEYS)
    return tmp_path / "copy"


def resumed(here: Path, *more: str) -> int:
    return main([str(here / "toy.yaml"), *more, "--resume"])


@pytest.mark.slow
def test_a_moved_corpus_changes_nothing(here):
    assert resumed(here) == 0  # with the paths of the copy
    assert not difference(result(here / "run"), result(here / "uninterrupted"))


@pytest.mark.slow
def test_a_kill_before_old_checkpoints_are_removed_leaves_none(here, monkeypatch):
    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "rotate", killed)
        assert resumed(here) == 130
    assert resumed(here) == 0
    assert not difference(result(here / "run"), result(here / "uninterrupted"))


def test_the_newest_checkpoint_and_the_best_are_read_once(here, monkeypatch):
    read: list[str] = []
    monkeypatch.setattr(Trainer, "run", lambda trainer: 1 / 0)  # all reads come before
    function = checkpoint_module.read_checkpoint

    def reading(path: Path, with_optimizer: bool = True) -> Checkpoint:
        read.append(path.name)
        return function(path, with_optimizer)

    monkeypatch.setattr(checkpoint_module, "read_checkpoint", reading)
    assert resumed(here) == 3
    newest, best = RunFolder(here / "run").checkpoints()[-1].name, RunFolder(here / "run").best()
    assert sorted(read) == sorted({newest, best})


def test_a_run_that_another_training_continues_meanwhile_is_refused(here, monkeypatch, capsys):
    enter = TrainingFolder.__enter__

    def changed(run):
        folder = run.checkpoints()[-1]
        shutil.copytree(folder, folder.with_name("u000099"))
        return enter(run)

    monkeypatch.setattr(TrainingFolder, "__enter__", changed)
    assert resumed(here) == MachineError.exit_code
    assert "another process has changed this run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("train.max_validations = 4", "raise train.max_validations"),
        ("no better bleu in 4 validations", "raise train.max_validations"),
        ("all updates done", "change the schedule"),
        ("the linear schedule ended", "change the schedule"),  # of version 0.2
        ("learning rate 1.0e-09 below train.min_lr = 1e-08", "change the schedule"),
    ],
)
def test_the_advice_about_a_finished_run_lengthens_it(here, reason, advice, capsys):
    run = here / "uninterrupted"
    summary = read_summary(RunFolder(run))
    assert summary["reason"] == "train.max_validations = 4"
    write_summary(RunFolder(run), {**summary, "reason": reason})
    capsys.readouterr()
    assert resumed(here, f"out={run}") == 0
    assert f"({reason})\n  -> to train longer, {advice}" in capsys.readouterr().err


@pytest.mark.parametrize("role", ["train", "dev", "test"])
def test_a_changed_corpus_is_refused_by_name(here, role, capsys):
    path = here / f"{role}.en"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    before = content(here / "run")
    assert resumed(here, "data.max_len=9", "train.max_validations=4") == 2
    err = capsys.readouterr().err
    assert "data.max_len: 250 -> 9" in err  # this key must not change
    assert resumed(here) == 2
    err = capsys.readouterr().err
    assert f"the data changed since this run began:\n  data.{role} ({here / role}): SHA-256" in err
    assert content(here / "run") == before


def test_a_run_whose_corpus_fails_newer_checks_can_be_resumed(here, monkeypatch, capsys):
    found = Finding("new", "dev", "found", error=True)
    monkeypatch.setattr(prepare, "over_batch", lambda *args: [found])
    assert resumed(here) == 2
    assert "dev: found\n  -> fix the corpus, or set data.checks=warn" in capsys.readouterr().err
    assert resumed(here, "data.checks=warn") == 0
    assert "warning: dev: found" in capsys.readouterr().err
    assert not difference(result(here / "run"), result(here / "uninterrupted"))


def test_a_run_keeps_its_own_segmentation(here, monkeypatch):
    """Even without the cache, and if a new version of a library learns other pieces."""
    shutil.rmtree(here / ".cache")
    monkeypatch.setattr(bpe, "learn_codes", lambda *counts_and_merges: [("1", "2</w>")])
    folder = here / "run" / "checkpoints" / "text"
    texts = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert resumed(here) == 0
    for name in ("checkpoints/text", "model"):
        assert texts == {text: (here / "run" / name / text).read_bytes() for text in texts}
    assert not difference(result(here / "run"), result(here / "uninterrupted"))


def test_another_tokenizer_is_refused(here, monkeypatch, capsys):
    shutil.rmtree(here / ".cache")
    real = bpe.FastBpe.encode
    monkeypatch.setattr(bpe.FastBpe, "encode", lambda *a: [*real(*a), "."])
    before = content(here / "run")
    assert resumed(here) == 2
    err = capsys.readouterr().err
    assert "the same corpora give other subwords than when this run began" in err
    assert "another version of nmt, sacremoses" in err
    assert "the manifest.json of a checkpoint name" in err
    assert "out=PATH" in err
    assert content(here / "run") == before


def test_a_resumed_run_needs_space_for_its_next_checkpoint_only(here, monkeypatch, capsys):
    size = sum(path.stat().st_size for path in (here / "run/checkpoints/u000007").iterdir())
    free = types.SimpleNamespace(free=files._SLACK + size + 1000)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda folder: free)
    assert resumed(here) == 0
    assert main([str(here / "toy.yaml"), f"out={here / 'new'}"]) == 4
    assert "the disk (or your quota) is full" in capsys.readouterr().err


def test_a_changed_vocabulary_is_refused(here, capsys):
    path = here / "run" / "checkpoints" / "text" / "vocab.txt"
    first, second, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([second, first, *others]))
    assert resumed(here) == 2
    assert "vocab.txt or segmenter.json is not the one that this run began" in (
        capsys.readouterr().err
    )


def test_auto_precision_keeps_that_of_the_latest_checkpoint(monkeypatch):
    """Even on a machine for which ``auto`` would choose another."""

    def resolve(name: str, device: torch.device) -> str:
        if name == "fp16":
            raise MachineError("this device has no fp16", at="precision", fix="set precision=bf16")
        return "bf16" if name == "auto" else name

    monkeypatch.setattr(start, "resolve_precision", resolve)
    cpu = torch.device("cpu")
    assert start.resumed_precision("auto", "fp32", cpu) == "fp32"
    assert start.resumed_precision("auto", "auto", cpu) == "bf16"  # not known
    assert start.resumed_precision("bf16", "fp32", cpu) == "bf16"  # requested by the user
    with pytest.raises(MachineError) as error:
        start.resumed_precision("auto", "fp16", cpu)
    assert str(error.value) == (
        "precision: this device has no fp16, and this run was trained in fp16\n"
        "  -> resume on a device that supports fp16, or set precision=bf16"
    )


def test_another_precision_is_noted(here):
    assert resumed(here, "precision=bf16") == 0
    assert (
        "this run was trained in fp32 and continues in bf16" in (here / "run/train.log").read_text()
    )


def test_auto_after_an_explicit_precision_is_allowed(here):
    assert resumed(here, "precision=auto") == 0
    assert not difference(result(here / "run"), result(here / "uninterrupted"))


# --- damaged checkpoints ------------------------------------------------------------------------


def best_of(run: Path, update: int) -> None:
    """Make a checkpoint the best by giving it the highest dev score."""
    folder = RunFolder.open(run)
    for path in folder.checkpoints():
        state = json.loads((path / "state.json").read_text())
        state["best_update"] = update
        state["history"] = [[u, 90.0 if u == update else s] for u, s in state["history"]]
        (path / "state.json").write_text(json.dumps(state))
        resign(path)


def test_a_damaged_best_is_replaced_at_the_start(here):
    run = here / "run"
    kept = [p.name for p in RunFolder.open(run).checkpoints()]
    assert kept == ["u000002", "u000004", "u000006", "u000007"]
    best_of(run, 4)
    flip(run / "checkpoints/u000004/model.safetensors")
    assert resumed(here) == 0
    log = (run / "train.log").read_text()
    assert "the best checkpoint cannot be used" in log
    assert "u000004/model.safetensors: damaged or edited" in log
    assert "the best checkpoint is now u000006" in log
    assert log.index("checkpoint is now u000006") < log.index("update      8")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["best"] in ("u000006", "u000008")


def test_a_best_damaged_during_training_is_replaced_at_the_end(here, monkeypatch):
    run = here / "run"
    best_of(run, 4)

    def act(trainer: Trainer) -> None:
        if trainer.state.update == 8:
            flip(run / "checkpoints/u000004/model.safetensors")

    call_after(monkeypatch, Trainer, "update", act)
    assert resumed(here) == 0
    assert "the best checkpoint is now u000008" in (run / "train.log").read_text()
    assert json.loads((run / "summary.json").read_text())["best"] == "u000008"  # equal to u000006


def test_without_another_validated_checkpoint_the_next_one_is_best(here):
    run = here / "run"
    best_of(run, 4)
    flip(run / "checkpoints/u000004/model.safetensors")
    for name in ("u000002", "u000006"):
        shutil.rmtree(run / "checkpoints" / name)
    assert resumed(here) == 0
    assert "no other validated checkpoint is kept" in (run / "train.log").read_text()
    assert json.loads((run / "summary.json").read_text())["best"] == "u000008"
