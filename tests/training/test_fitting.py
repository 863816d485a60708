"""Training that fits: LoRA, Adafactor, and activations that are computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt.cli import average
from nmt.cli.train import main
from nmt.config.recipe import OptimConfig
from nmt.errors import UserError
from nmt.store.checkpoint import load_checkpoint, read_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.model import Model
from nmt.store.tensors import read_weights
from nmt.training import loss
from nmt.training.trainer import Trainer
from tests.test_resume import difference, result, stop_and_resume
from tests.toy import toy_corpus, toy_recipe
from tests.training.helpers import equal, gradients, moments, weights

SCHEDULE = {"schedule": {"kind": "constant", "lr": 1e-2}}
TRAINING: dict[str, Any] = {
    "train": {"validate_every": 4, "max_validations": 3, "keep": 3, "log_every": 2}
}
FITTING: dict[str, Any] = {
    "lora": {"rank": 4},
    "optim": {"kind": "adafactor"},
    "model": {"dropout": 0.2},
    "train": {**TRAINING["train"], "recompute": True},
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a corpus, a recipe, and a run to start from."""
    folder = tmp_path_factory.mktemp("fitting")
    toy_corpus(folder, {"train": 60, "dev": 6, "test": 4})
    recipe = toy_recipe(folder, {**SCHEDULE, **TRAINING})
    assert main([str(recipe)]) == 0
    return folder


def words(toy: Path, out: Path, *overrides: str) -> list[str]:
    return [str(toy / "toy.yaml"), f"out={out}", f"init.from={toy / 'run'}", *overrides]


@pytest.fixture(scope="module")
def child(toy: Path) -> Path:
    """Return a run with LoRA, Adafactor, recomputation and dropout."""
    recipe = toy / "child.yaml"
    usual = (toy / "toy.yaml").read_text(encoding="utf-8")
    changes = {**SCHEDULE, **FITTING, "init": {"from": str(toy / "run")}}
    toy_recipe(toy, changes).rename(recipe)
    (toy / "toy.yaml").write_text(usual, encoding="utf-8")
    assert main([str(recipe), f"out={toy / 'child'}"]) == 0
    return toy / "child"


def test_lora_changes_the_weights_of_layers_and_nothing_else(toy: Path, child: Path):
    before = read_weights(Model.open(toy / "run"))
    after = read_checkpoint(RunFolder.open(child).checkpoints()[-1]).weights
    saved = load_checkpoint(RunFolder.open(child))
    assert after.keys() == before.keys()
    assert {name for name in saved.model if ".lora." in name}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    layers = {name.removesuffix(".lora.a") + ".weight" for name in saved.model if ".lora.a" in name}
    assert changed == layers
    assert all(".lora." in name for name in saved.optimizer)


def test_translations_of_the_run_are_those_of_its_validation(child: Path):
    best = RunFolder.open(child).best()
    hypotheses = (child / "test.hyp").read_text(encoding="utf-8").splitlines()
    lines = (child.parent / "test.gl").read_text(encoding="utf-8").splitlines()
    assert best is not None
    assert nmt.Translator.load(child).translate(lines) == hypotheses


def test_a_run_with_lora_is_averaged_and_is_a_parent(child: Path, toy: Path, tmp_path: Path):
    paths, model = RunFolder.open(child).checkpoints()[-2:], tmp_path / "model"
    names = [path.name for path in paths]
    assert average.main([str(child), "--checkpoints", *names, "-o", str(model)]) == 0
    newest = [read_checkpoint(path).weights for path in paths]
    mean = read_weights(Model.open(model))
    for name, tensor in mean.items():
        expected = (newest[0][name].double() + newest[1][name].double()) / 2
        torch.testing.assert_close(tensor, expected.float(), msg=name)
    grandchild = tmp_path / "run"
    words_of_it = [str(toy / "toy.yaml"), f"out={grandchild}", f"init.from={model}"]
    assert main([*words_of_it, "train.max_validations=1"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("update", [3, 8])
def test_a_resumed_run_equals_an_uninterrupted_one(
    toy: Path, child: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: int
):
    again = stop_and_resume(
        str(child.with_name("child.yaml")), tmp_path / "run", monkeypatch, Trainer, "update", update
    )
    assert not difference(again, result(child))


def test_recomputing_does_not_change_the_gradients(start, monkeypatch: pytest.MonkeyPatch):
    """Compare gradients: Adam makes a full step of the rounding of a key bias's, which is zero."""
    monkeypatch.setattr(loss, "MAX_LOGITS", 64)  # parts of a few tokens
    results = []
    for recompute in ("false", "true"):
        words = [f"train.recompute={recompute}", "model.dropout=0.3", "optim.accumulate=3"]
        trainer = start(*words, "precision=fp32")
        trainer.update(next(trainer.updates()))
        results.append(gradients(trainer))
    assert results[0].keys() == results[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in results[0].values())
    for name, gradient in results[0].items():
        # sums of logits' gradients are added in another order, with rounding of 1e-7 each
        torch.testing.assert_close(
            gradient, results[1][name], rtol=0, atol=1e-4 * largest, msg=name
        )


@pytest.mark.parametrize("bf16", [False, True])
def test_the_loss_in_parts_is_the_loss_of_all_logits(monkeypatch: pytest.MonkeyPatch, bf16: bool):
    generator = torch.Generator().manual_seed(1)
    states, table = (torch.randn(size, 8, generator=generator) for size in (30, 20))
    targets, weights = torch.arange(30) % 20, torch.arange(30) % 3 / 2
    allowed = torch.arange(20) < 19
    results = []
    for size in (10**9, 60):  # all at once; three tokens at a time
        monkeypatch.setattr(loss, "MAX_LOGITS", size)
        x, rows = (tensor.clone().requires_grad_() for tensor in (states, table))
        with torch.autocast("cpu", enabled=bf16):
            arguments = (targets, allowed, OptimConfig(), weights)
            sums = loss.recomputed_losses(torch.nn.functional.linear, x, rows, *arguments)
            logits = torch.nn.functional.linear(x, rows)
        sums["smoothed"].backward()
        usual = loss.token_losses(logits, *arguments)
        assert sums["smoothed"].dtype == torch.float32
        torch.testing.assert_close(sums["smoothed"], usual["smoothed"])
        torch.testing.assert_close(sums["nll"], usual["nll"])
        results.append((x.grad, rows.grad))
    for gradient, in_parts in zip(*results, strict=True):
        # in bf16, the gradients of parts are rounded one by one
        tolerance = {"rtol": 0.02, "atol": 0.1} if bf16 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(gradient, in_parts, **tolerance)


def test_adafactor_keeps_a_row_and_a_column_of_a_matrix(start):
    trainer = start("optim.kind=adafactor")
    before = weights(trainer)
    trainer.update(next(trainer.updates()))
    assert not equal(before, weights(trainer))
    sizes = {key: tensor.numel() for key, tensor in moments(trainer).items()}
    rows, columns = before["embed.weight"].shape
    assert sizes["embed.weight/row_var"] == rows
    assert sizes["embed.weight/col_var"] == columns


def test_lora_needs_the_rows_of_all_pieces(toy: Path, tmp_path: Path):
    for name in ("train", "dev", "test"):
        for lang in ("gl", "en"):
            text = (toy / f"{name}.{lang}").read_text(encoding="utf-8")
            (tmp_path / f"{name}.{lang}").write_text(text.replace("7", "x"), encoding="utf-8")
    recipe = toy_recipe(tmp_path, {**SCHEDULE, **TRAINING})
    with pytest.raises(UserError, match="1 of 14 rows") as error:
        nmt.train(str(recipe), [f"init.from={toy / 'run'}", "lora.rank=2"], quiet=True)
    assert error.value.at == "lora.rank"


def test_a_dev_line_beyond_the_learned_positions_is_an_error(toy: Path, tmp_path: Path):
    long = {"gl": "1 " * 700, "en": "1 " * 9}
    for name in ("train", "dev", "test"):
        for lang in ("gl", "en"):
            text = (toy / f"{name}.{lang}").read_text(encoding="utf-8")
            text += f"{long[lang]}\n" if name == "dev" else ""
            (tmp_path / f"{name}.{lang}").write_text(text, encoding="utf-8")
    model = {"positions": "learned", "max_positions": 640}
    recipe = toy_recipe(tmp_path, {**SCHEDULE, **TRAINING, "model": model})
    with pytest.raises(UserError, match="702 tokens") as error:
        nmt.train(str(recipe), ["data.max_pieces=600"], quiet=True)
    assert error.value.at == "data.dev"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["lora.rank=2", "lora.targets=nothing.*"], "lora.targets"),
        (["lora.rank=2", "init.freeze=encoder.*"], "init.freeze"),
        (["lora.rank=2", "train.average=2"], "train.average"),
        (["lora.alpha=2"], "lora.rank"),
        (["lora.rank=2", "model.dec_layers=2"], "lora.rank"),  # a layer that the parent lacks
    ],
)
def test_a_wrong_key_is_an_error(toy: Path, tmp_path: Path, overrides: list[str], key: str):
    with pytest.raises(UserError, match=key):
        nmt.train(str(toy / "toy.yaml"), words(toy, tmp_path / "run", *overrides)[1:], quiet=True)
    assert not (tmp_path / "run").exists()
