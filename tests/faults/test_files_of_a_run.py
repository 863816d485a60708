"""Files of a run folder or an export that were changed alone: refused by name, never used."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nmt.apps.evaluate import command as score
from nmt.apps.serve import command as serve
from nmt.cli import average, export, train, translate
from nmt.errors import MachineError, UserError
from nmt.export import folder
from nmt.export.engines import load_translator
from nmt.run import manifest
from nmt.run.checkpoint import load_checkpoint
from nmt.run.folder import RunFolder
from nmt.run.results import read_summary
from nmt.runtime import memory
from tests.run_cases import flip, forget_recipe, resign
from tests.toy import toy_corpus, toy_recipe


@pytest.fixture
def run(short_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(short_run, tmp_path / "run"))


@pytest.fixture
def model(short_export: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(short_export, tmp_path / "model"))


def edit(run: Path, old: str, new: str) -> None:
    config = run / "config.yaml"
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))


EDITS = {
    "model.ffn_dim": ("model.ffn_dim: 32 -> 33", "ffn_dim: 32", "ffn_dim: 33"),
    "decode.beam": ("decode.beam: 2 -> 3", "beam: 2", "beam: 3"),
    "tgt": ("tgt: en -> eo", "tgt: en", "tgt: eo"),
    "data.tokenized": ("data.tokenized: true -> false", "tokenized: true", "tokenized: false"),
    "score.select_by": ("score.select_by: bleu -> ppl", "select_by: bleu", "select_by: ppl"),
}


@pytest.mark.parametrize("key", EDITS)
def test_a_key_that_changes_results_is_refused_by_name(key, run):
    message, old, new = EDITS[key]
    edit(run, old, new)
    with pytest.raises(UserError, match=re.escape(f"{run / 'config.yaml'}: ")) as refused:
        load_checkpoint(RunFolder(run), "best")
    assert message in str(refused.value)


def test_every_command_refuses_a_changed_key(run, tmp_path, capsys):
    message, old, new = EDITS["decode.beam"]
    edit(run, old, new)
    child = toy_recipe(run.parent, {"init": {"from": str(run)}, "out": str(tmp_path / "child")})
    toy_corpus(run.parent)
    (tmp_path / "text").write_text("1 2 3\n")
    for command, *arguments in (
        (translate, str(run), "--input", str(tmp_path / "text")),
        (average, str(run), "--last", "2"),
        (export, str(run), "--output", str(tmp_path / "model")),
        (serve, str(run)),
        (score, str(run)),
        (train, str(child)),
    ):
        capsys.readouterr()
        assert command.main(arguments) == 2, command
        error = capsys.readouterr().err
        assert message in error, command
        assert "\n  -> " in error
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "child").exists()


def test_a_cut_config_is_refused_if_a_key_differs_from_its_default(run, capsys):
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text[: text.index("decode:")])
    assert translate.main([str(run)]) == 2
    assert "decode.beam: 2 -> " in capsys.readouterr().err


def test_keys_that_a_resumed_run_may_change_may_change(run):
    edit(run, "device: cpu", "device: auto")
    edit(run, "batch_tokens: 16384", "batch_tokens: 100")
    edit(run, "log_every: 4", "log_every: 5")
    load_checkpoint(RunFolder(run), "best")


def test_a_checkpoint_without_the_recipe_loads_as_before(run):
    forget_recipe(run)
    edit(run, "beam: 2", "beam: 3")
    assert load_translator(run).info.decode.beam == 3


def test_best_names_a_checkpoint_by_its_weights(run, capsys):
    name, digest = (run / "best").read_text().split()
    names = [path.name for path in RunFolder(run).checkpoints()]
    other = next(one for one in names if one != name)
    (run / "best").write_text(f"{other} {digest}\n")
    for command in (translate, score):
        assert command.main([str(run)]) == 2
        assert f"best: checkpoint {other} does not have" in capsys.readouterr().err
    (run / "best").write_text(f"{other}\n")  # as a user or an older version writes it
    assert load_checkpoint(RunFolder(run), "best").path.name == other


@pytest.mark.parametrize("split", ["test", "dev"])
@pytest.mark.parametrize("ending", ["hyp", "words"])
def test_translations_that_changed_are_not_scored(split, ending, run, capsys):
    best = RunFolder(run).best()
    path = run / (f"test.{ending}" if split == "test" else f"dev/{best}.{ending}")
    assert score.main([str(run), "--split", split, "--resamples", "0"]) == 0
    content = path.read_bytes()
    for changed in (bytes([content[0] ^ 1]) + content[1:], content[:-2], None):
        path.unlink() if changed is None else path.write_bytes(changed)
        capsys.readouterr()
        assert score.main([str(run), "--split", split, "--resamples", "0"]) == 2
        assert f"{path}: " in capsys.readouterr().err


def test_a_damaged_summary_counts_as_missing(run):
    text = (run / "summary.json").read_text()
    value = read_summary(RunFolder(run))["updates"]
    (run / "summary.json").write_text(text.replace(f'"updates": {value}', '"updates": 99'))
    assert read_summary(RunFolder(run)) == {}


def test_tensors_of_another_type_are_refused(run):
    path = load_checkpoint(RunFolder(run), "best").path
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    tensors["embed.weight"] = tensors["embed.weight"].to(torch.float16)
    (path / "model.safetensors").write_bytes(safetensors.torch.save(tensors))
    resign(path)
    (run / "best").write_text(path.name)
    with pytest.raises(UserError, match=r"embed\.weight has type float16; expected type float32"):
        load_translator(run)


def test_a_model_larger_than_its_checkpoint_is_never_allocated(run, monkeypatch):
    """config.yaml of a stranger: 100 layers of dim 16,384, and a checkpoint without a recipe."""
    forget_recipe(run)
    edit(run, "dim: 16\n", "dim: 16384\n")
    edit(run, "enc_layers: 1\n", "enc_layers: 100\n")
    made: list[int] = []
    real = torch.nn.Parameter.__new__

    def counted(cls, data=None, requires_grad=True):
        if data is not None and data.device.type != "meta":
            made.append(data.numel())
        return real(cls, data, requires_grad)

    monkeypatch.setattr(torch.nn.Parameter, "__new__", counted)
    with pytest.raises(UserError, match="expected shape"):
        load_translator(run)
    assert sum(made) < 1e6


def test_a_sparse_file_larger_than_the_memory_is_refused(run, model, monkeypatch):
    monkeypatch.setattr(memory, "_free_host_memory", lambda: 12_000)
    with pytest.raises(MachineError, match=r"model\.safetensors: has .* of memory are free"):
        load_translator(run)
    with pytest.raises(MachineError, match=r"model\.bin: has .* of memory are free"):
        load_translator(model, "cpu")
    assert manifest.require_room is folder.require_room


HASHED = ["model.bin", "config.json", "shared_vocabulary.json", "vocab.txt", "segmenter.json",
          "nmt.json"]  # fmt: skip


@pytest.mark.parametrize("name", HASHED)
def test_a_changed_file_of_an_export_is_refused(name, model):
    flip(model / name, 0)
    with pytest.raises(UserError, match=re.escape(f"{name}: damaged or edited: its SHA-256")):
        load_translator(model, "cpu")


def test_the_program_of_an_export_refuses_a_changed_or_missing_file(model):
    flip(model / "nmt.json", 0)
    ran = program(model)
    assert ran.returncode == 2
    assert "nmt.json is damaged or edited" in ran.stderr
    assert "Traceback" not in ran.stderr
    (model / "nmt.json").unlink()
    assert "nmt.json is missing" in program(model).stderr


def test_a_missing_file_of_an_export_is_named(model):
    (model / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"vocab\.txt: cannot be read"):
        load_translator(model, "cpu")


@pytest.mark.slow
def test_an_edited_export_is_used_without_its_hashes(model):
    settings = json.loads((model / "nmt.json").read_text())
    settings["decode"]["beam"] = 1
    (model / "nmt.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match="delete SHA256SUMS"):
        load_translator(model, "cpu")
    (model / "SHA256SUMS").unlink()
    assert load_translator(model, "cpu").info.decode.beam == 1
    assert program(model).returncode == 0


def test_the_hashes_are_those_of_sha256sum(model):
    ran = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=model, capture_output=True)
    assert ran.returncode == 0
    lines = (model / "SHA256SUMS").read_text().splitlines()
    assert sorted(line.split()[1] for line in lines) == sorted(HASHED)


@pytest.mark.parametrize("text", ["", "0" * 64 + "  model.bin\n", "x\n"])
def test_damaged_hashes_are_refused(text, model):
    (model / "SHA256SUMS").write_text(text)
    with pytest.raises(UserError, match="SHA256SUMS"):
        load_translator(model, "cpu")


def program(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run translate.py of an export."""
    command = [sys.executable, str(folder / "translate.py")]
    return subprocess.run(command, input="1 2\n", capture_output=True, text=True)
