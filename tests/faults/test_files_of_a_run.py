"""Files of a run folder or an export that were changed alone: refused by name, never used."""

from __future__ import annotations

import io
import json
import os
import runpy
import shutil
import sys
import traceback
from pathlib import Path

import pytest
import torch

from nmt.cli import average, score, train
from nmt.decoding.translator import Translator
from nmt.errors import MachineError, UserError
from nmt.runtime import memory
from nmt.store.checkpoint import load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.model import Model
from nmt.store.results import read_summary
from nmt.store.tensors import read_weights
from tests.faults.test_damaged_checkpoints import EXPORTED
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


def test_a_model_of_links_is_read_as_in_the_cache_of_a_hub(run, tmp_path):
    blobs, snapshot = run / "model", tmp_path / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    for path in filter(Path.is_file, blobs.iterdir()):
        (snapshot / path.name).symlink_to(path)
    expected, found = (read_weights(Model.open(folder)) for folder in (blobs, snapshot))
    assert {name for name in expected if torch.equal(found[name], expected[name])} == set(found)


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


def test_an_edited_description_is_used_without_its_seal(run):
    edit_model(run / "model", decode={"beam": 1})
    assert Translator.load(run).info.decode.beam == 1


def test_the_program_of_an_export_refuses_a_changed_or_missing_file(model):
    assert program(model)[0] == 0
    for name in ("model.json", *EXPORTED):
        content = (model / name).read_bytes()
        for damage in (lambda path: flip(path, 0), Path.unlink):
            damage(model / name)
            code, error = program(model)
            assert (code, Path(name).name in error) == (2, True)
            assert "Traceback" not in error
            (model / name).write_bytes(content)


def test_the_program_uses_an_edited_description_without_its_seal(model):
    path = model / "model.json"
    path.write_text(path.read_text().replace('"beam": 2', '"beam": 1'))
    assert program(model)[0] == 2
    about = json.loads(path.read_text())
    del about["sha256"]
    path.write_text(json.dumps(about))
    assert program(model)[0] == 0


def program(folder: Path) -> tuple[int, str]:
    """Run translate.py of an export in a fork, which need not import CTranslate2 again."""
    errors = folder.with_name("errors")
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            sys.stdin = io.TextIOWrapper(io.BytesIO(b"1 2\n"))
            sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO()), open(2, "w")  # noqa: SIM115
            sys.argv, sys.path = [str(folder / "translate.py")], [str(folder), *sys.path]
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), errors.read_text()
