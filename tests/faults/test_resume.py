"""A run that is resumed elsewhere, later, or after damage: the same training, or a refusal."""

from __future__ import annotations

import importlib
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nmt.cli.train import main
from nmt.data.segmenters import bpe
from nmt.errors import MachineError
from nmt.run.folder import RunFolder
from nmt.training import resume
from nmt.training.trainer import Trainer
from tests.run_cases import resign
from tests.test_resume import call_after, difference, result, terminate_after
from tests.toy import toy_corpus, toy_recipe

KEYS = {
    "segment": {"kind": "fastbpe", "merges": 12},
    "train": {"validate_every": 2, "max_validations": 4, "log_every": 2, "keep": 2},
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder with a corpus, a recipe, and two runs: one that ended, and one that was stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    toy_corpus(folder, {"train": 80, "dev": 4, "test": 4})
    recipe = str(toy_recipe(folder, KEYS))
    assert main([recipe, f"out={folder / 'whole'}"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        terminate_after(patch, Trainer, "update", 7)
        assert main([recipe]) == 143
    return folder


@pytest.fixture
def here(stopped, tmp_path) -> Path:
    """A copy of that folder for one test; the copied recipe names the copy."""
    shutil.copytree(stopped, tmp_path / "copy")
    toy_recipe(tmp_path / "copy", KEYS)
    return tmp_path / "copy"


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def resumed(here: Path, *more: str) -> int:
    return main([str(here / "toy.yaml"), *more, "--resume"])


def test_a_moved_corpus_goes_on_as_if_it_had_not_moved(here):
    assert resumed(here) == 0  # its paths are those of the copy
    assert not difference(result(here / "run"), result(here / "whole"))


@pytest.mark.parametrize("role", ["train", "dev", "test"])
def test_a_changed_corpus_is_refused_by_name(here, role, capsys):
    path = here / f"{role}.en"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]))
    before = content(here / "run")
    assert resumed(here, "data.checks=off", "train.max_validations=4") == 2
    said = capsys.readouterr().err
    assert "data.checks" in said  # a key that is not free
    assert resumed(here) == 2
    said = capsys.readouterr().err
    assert f"the data changed since this run began:\n  data.{role} ({here / role}): SHA-256" in said
    assert content(here / "run") == before


def test_another_version_learns_other_pieces_and_the_run_keeps_its_own(here, monkeypatch):
    """The cache is gone, and the library that learns the segmentation is another version."""
    shutil.rmtree(here / ".cache")
    monkeypatch.setattr(bpe, "learn_codes", lambda counts, merges: [("1", "2</w>")])
    texts = {name: (here / "run" / name).read_bytes() for name in ("vocab.txt", "segmenter.json")}
    assert resumed(here) == 0
    assert texts == {name: (here / "run" / name).read_bytes() for name in texts}
    assert not difference(result(here / "run"), result(here / "whole"))


def test_another_tokenizer_is_refused_and_nothing_is_overwritten(here, monkeypatch, capsys):
    shutil.rmtree(here / ".cache")
    real = bpe.FastBpe.encode
    monkeypatch.setattr(bpe.FastBpe, "encode", lambda *a: [*real(*a), "."])
    before = content(here / "run")
    assert resumed(here) == 2
    said = capsys.readouterr().err
    assert "the same corpora give other pieces than when this run began" in said
    assert "out=PATH" in said
    assert content(here / "run") == before


def test_a_changed_vocabulary_is_refused_before_the_training(here, capsys):
    path = here / "run" / "vocab.txt"
    first, second, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([second, first, *others]))
    assert resumed(here) == 2
    assert "vocab.txt or segmenter.json is not the one that this run began" in (
        capsys.readouterr().err
    )


def test_the_precision_of_the_beginning_stays(monkeypatch):
    """``auto`` on a machine that would choose another."""

    def resolve(name: str, device: torch.device) -> str:
        if name == "fp16":
            raise MachineError("this device has no fp16", at="precision", fix="set fp32")
        return "bf16" if name == "auto" else name

    monkeypatch.setattr(resume, "resolve_precision", resolve)
    cpu = torch.device("cpu")
    assert resume.resumed_precision("auto", "fp32", cpu) == "fp32"
    assert resume.resumed_precision("auto", "auto", cpu) == "bf16"  # not known
    assert resume.resumed_precision("bf16", "fp32", cpu) == "bf16"  # the user's wish
    with pytest.raises(MachineError, match=r"no fp16, and this run began in fp16\n  -> resume on"):
        resume.resumed_precision("auto", "fp16", cpu)


def test_another_precision_is_said(here):
    assert resumed(here, "precision=bf16") == 0
    assert "this run began in fp32 and continues in bf16" in (here / "run/train.log").read_text()


def test_auto_after_an_explicit_precision_is_no_other_recipe(here):
    assert resumed(here, "precision=auto") == 0
    assert not difference(result(here / "run"), result(here / "whole"))


# --- damaged checkpoints ------------------------------------------------------------------------


def damage(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def best_of(run: Path, update: int) -> None:
    """Make a checkpoint the best, as if its dev score had been the highest."""
    folder = RunFolder.open(run)
    for path in folder.checkpoints():
        state = json.loads((path / "state.json").read_text())
        state["best_update"] = update
        state["history"] = [[u, 90.0 if u == update else s] for u, s in state["history"]]
        (path / "state.json").write_text(json.dumps(state))
        resign(path)
    folder.set_best(f"u{update:06d}")


def test_a_damaged_best_is_found_at_the_start_and_another_takes_its_place(here):
    run = here / "run"
    assert [p.name for p in RunFolder.open(run).checkpoints()] == ["u000002", "u000006", "u000007"]
    best_of(run, 2)
    damage(run / "checkpoints" / "u000002")
    assert resumed(here) == 0
    log = (run / "train.log").read_text()
    assert "the best checkpoint cannot be used" in log
    assert "u000002/model.safetensors: damaged" in log
    assert "best is u000006 now" in log
    assert log.index("best is u000006") < log.index("update      8")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["best"] in ("u000006", "u000008")


def test_a_best_that_is_damaged_during_the_training_does_not_keep_it_from_ending(here, monkeypatch):
    run = here / "run"
    best_of(run, 2)

    def act(trainer: Trainer) -> None:
        if trainer.state.update == 8:
            damage(run / "checkpoints" / "u000002")

    call_after(monkeypatch, Trainer, "update", act)
    assert resumed(here) == 0
    assert "best is u000006 now" in (run / "train.log").read_text()
    assert json.loads((run / "summary.json").read_text())["best"] == "u000006"


def test_without_another_validated_checkpoint_the_next_validation_is_best(here):
    run = here / "run"
    best_of(run, 2)
    damage(run / "checkpoints" / "u000002")
    shutil.rmtree(run / "checkpoints" / "u000006")
    assert resumed(here) == 0
    assert "no other validated checkpoint is kept" in (run / "train.log").read_text()
    assert json.loads((run / "summary.json").read_text())["best"] == "u000008"


def reseal(checkpoint: Path, file: str, change) -> None:
    tensors = safetensors.torch.load_file(checkpoint / file)
    change(tensors)
    safetensors.torch.save_file(tensors, checkpoint / file)
    resign(checkpoint)


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        (
            "model.safetensors",
            lambda t: t.update({"out_bias": torch.zeros(3)}),
            r"tensor out_bias has shape \[3\]; expected shape \[\d+\]",
        ),
        (
            "model.safetensors",
            lambda t: t.pop("out_bias"),
            r"tensor out_bias is missing; expected shape \[\d+\]",
        ),
        (
            "model.safetensors",
            lambda t: t.update({"extra": torch.zeros(3)}),
            r"tensor extra has shape \[3\]; expected no tensor of this name",
        ),
        (
            "optimizer.safetensors",
            lambda t: t.pop("out_bias/exp_avg"),
            r"tensor out_bias/exp_avg is missing",
        ),
        (
            "optimizer.safetensors",
            lambda t: t.update({"out_bias/exp_avg_sq": torch.zeros(1)}),
            r"tensor out_bias/exp_avg_sq has shape \[1\]",
        ),
        ("optimizer.safetensors", lambda t: t.clear(), r"tensor \S+/step is missing"),
    ],
    ids=["shape", "missing", "unknown", "moment missing", "moment shape", "no optimizer"],
)
def test_a_resealed_checkpoint_that_does_not_fit_is_refused_by_name(
    here, file, change, says, capsys
):
    run = here / "run"
    reseal(run / "checkpoints" / "u000007", file, change)
    before = content(run)
    assert resumed(here) == 2
    said = capsys.readouterr().err
    assert f"u000007/{file}: " in said
    assert re.search(says, said), said
    assert "-> restore the checkpoint from a copy" in said
    assert content(run) == before


def test_a_checkpoint_of_a_newer_version_is_left_alone(here, capsys):
    """An older version must not fall back and give up what the newer one has trained."""
    run = here / "run"
    path = run / "checkpoints" / "u000007" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "format": 99, "nmt": "9.9"}))
    before = content(run)
    assert resumed(here) == 2
    said = capsys.readouterr().err
    assert "install version 9.9 or newer" in said
    assert "--fresh" not in said
    assert content(run) == before


@pytest.mark.parametrize("newer", [True, False], ids=["newer version", "damaged"])
@pytest.mark.parametrize("command", ["average", "translate", "export"])
def test_no_command_advises_to_give_a_run_up(here, command, newer, capsys, monkeypatch):
    """Nor names an option of another command."""
    for checkpoint in (here / "run" / "checkpoints").iterdir():
        path = checkpoint / "manifest.json"
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps({**manifest, "format": 99, "nmt": "9.9"}) if newer else "{}")
    run = str(here / "run")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1 2\n")))
    options = {"average": ["--last", "2"], "translate": ["--checkpoint", "latest"], "export": []}
    main = importlib.import_module(f"nmt.cli.{command}").main
    assert main([run, *options[command]]) == 2
    said = capsys.readouterr().err
    assert "--fresh" not in said
    assert "out=PATH" not in said
    assert ("-> install version 9.9 or newer" if newer else "-> restore the ") in said
