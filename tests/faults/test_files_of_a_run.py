"""Files of a run folder or an export that were changed alone: refused by name, never used."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nmt.cli import average, score, train
from nmt.decoding.translator import Translator
from nmt.errors import MachineError, UserError
from nmt.runtime import memory
from nmt.store.checkpoint import load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.manifest import NewerFormat
from nmt.store.model import WEIGHTS
from nmt.store.results import read_summary
from tests.run_cases import edit_model, flip


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
}


@pytest.mark.parametrize("key", EDITS)
def test_scores_of_another_recipe_are_refused_by_key(key, run, capsys):
    message, old, new = EDITS[key]
    edit(run, old, new)
    assert score.main([str(run)]) == 2
    error = capsys.readouterr().err
    assert f"{run / 'config.yaml'}: " in error
    assert message in error


def test_every_command_that_reads_the_recipe_refuses_a_changed_key(
    run, short_run, tmp_path, capsys
):
    message, old, new = EDITS["decode.beam"]
    edit(run, old, new)
    names = [path.name for path in RunFolder(run).checkpoints()]
    for command, *arguments in (
        (average, str(run), "--checkpoints", *names, "-o", str(tmp_path / "model")),
        (score, str(run)),
        (train, str(short_run.parent / "toy.yaml"), f"out={run}", "--resume"),
    ):
        capsys.readouterr()
        assert command.main(arguments) == 2, command
        error = capsys.readouterr().err
        assert message in error or "decode.beam: 3 -> 2" in error, command
        assert "\n  -> " in error
    assert not (tmp_path / "model").exists()


def test_a_model_does_not_need_its_run(run, tmp_path, capsys):
    """It can be copied, renamed and read without the run, of which nothing is read."""
    lines = ["3 1 4", "1 5"]
    expected = Translator.load(run).translate(lines)
    model = Path(shutil.copytree(run / "model", tmp_path / "renamed"))
    for path in run.iterdir():
        if path.name != "model":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = {path: path.stat().st_mtime_ns for path in model.iterdir()}
    assert Translator.load(run).translate(lines) == expected
    assert Translator.load(model).translate(lines) == expected
    assert {path: path.stat().st_mtime_ns for path in model.iterdir()} == before


def test_keys_that_a_resumed_run_may_change_may_change(run):
    edit(run, "device: cpu", "device: auto")
    edit(run, "batch_tokens: 16384", "batch_tokens: 100")
    edit(run, "log_every: 4", "log_every: 5")
    load_checkpoint(RunFolder(run))


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
    model = run / "model"
    tensors = safetensors.torch.load_file(model / WEIGHTS)
    tensors["embed.weight"] = tensors["embed.weight"].to(torch.float16)
    data = safetensors.torch.save(tensors)
    (model / WEIGHTS).write_bytes(data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    files = json.loads((model / "model.json").read_text())["files"]
    edit_model(model, files=files | {WEIGHTS: entry})
    with pytest.raises(UserError, match=r"embed\.weight has type float16; expected type float32"):
        Translator.load(run)


def test_a_model_larger_than_its_weights_is_never_allocated(run, monkeypatch):
    """model.json of a stranger: 100 layers of dim 16,384."""
    sizes = json.loads((run / "model" / "model.json").read_text())["model"]
    edit_model(run / "model", model=sizes | {"dim": 16384, "enc_layers": 100})
    made: list[int] = []
    real = torch.nn.Parameter.__new__

    def counted(cls, data=None, requires_grad=True):
        if data is not None and data.device.type != "meta":
            made.append(data.numel())
        return real(cls, data, requires_grad)

    monkeypatch.setattr(torch.nn.Parameter, "__new__", counted)
    with pytest.raises(UserError, match="expected shape"):
        Translator.load(run)
    assert sum(made) < 1e6


def test_a_sparse_file_larger_than_the_memory_is_refused(run, model, monkeypatch):
    monkeypatch.setattr(memory, "_free_host_memory", lambda: 12_000)
    with pytest.raises(MachineError, match=r"weights\.safetensors: has .* of memory are free"):
        Translator.load(run, engine="torch")
    with pytest.raises(MachineError, match=r"model\.bin: has .* of memory are free"):
        Translator.load(model, "cpu")


HASHED = ["vocab.txt", "segmenter.json", "translate.json", "ctranslate2/model.bin",
          "ctranslate2/config.json", "ctranslate2/shared_vocabulary.json"]  # fmt: skip


@pytest.mark.parametrize("name", HASHED)
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_file_of_a_model_is_refused_by_name(name, damage, model):
    path = model / name
    if damage == "flipped":
        flip(path, 0)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    with pytest.raises(UserError) as refused:
        Translator.load(model, "cpu")
    assert refused.value.at == str(path)


@pytest.mark.parametrize("values", [
    {"format": 2, "nmt": "9.1"}, {"files": {"../x": {"bytes": 1, "sha256": ""}}}, {"src": 3},
    {"model": {"dim": -1}}, {"decode": {"beam": 0}}, {"unknown": 1}, {"directions": [1]},
])  # fmt: skip
def test_a_description_with_other_values_is_refused(values, run):
    edit_model(run / "model", **values)
    with pytest.raises(UserError) as refused:
        Translator.load(run)
    assert refused.value.at == str(run / "model" / "model.json")
    assert isinstance(refused.value, NewerFormat) == ("format" in values)


def test_an_edited_description_is_used_without_its_seal(run):
    path = run / "model" / "model.json"
    text = path.read_text()
    path.write_text(text.replace('"beam": 2', '"beam": 1'))
    with pytest.raises(UserError, match="delete the key sha256") as refused:
        Translator.load(run)
    assert refused.value.at == str(path)
    path.write_text(text)
    edit_model(run / "model", decode={"beam": 1})
    assert Translator.load(run).info.decode.beam == 1


def test_the_program_of_an_export_refuses_a_changed_or_missing_file(model):
    for name in ("model.json", *HASHED):
        content = (model / name).read_bytes()
        for damage in (lambda path: flip(path, 0), Path.unlink):
            damage(model / name)
            ran = program(model)
            assert ran.returncode == 2
            assert Path(name).name in ran.stderr
            assert "Traceback" not in ran.stderr
            (model / name).write_bytes(content)


@pytest.mark.slow
def test_the_program_uses_an_edited_description_without_its_seal(model):
    path = model / "model.json"
    path.write_text(path.read_text().replace('"beam": 2', '"beam": 1'))
    assert program(model).returncode == 2
    about = json.loads(path.read_text())
    del about["sha256"]
    path.write_text(json.dumps(about))
    assert program(model).returncode == 0


def program(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run translate.py of an export."""
    command = [sys.executable, str(folder / "translate.py")]
    return subprocess.run(command, input="1 2\n", capture_output=True, text=True)
