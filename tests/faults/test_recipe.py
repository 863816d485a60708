"""Faults of recipes: one message with place and next step, exit code 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.cli import train
from nmt.config_loader import recipe_from_text
from nmt.errors import UserError

HEAD = "src: gl\ntgt: en\ndata: {train: a/train, dev: a/dev}\n"

FAULTS = {
    # text after the head -> what the message says
    "model: {nrom: pre}": 'r.yaml:4:9: unknown key "model.nrom"; did you mean "norm"?',
    "warmup_step: 3": 'r.yaml:4:1: unknown key "warmup_step"',
    "dropout: 0.1": 'r.yaml:4:1: unknown key "dropout"; "dropout" belongs under',
    "optim: {dim: 4}": '"dim" belongs under "model"',
    "schedule: {merges: 3}": "schedule.merges",
    "schedule: {lr: 3e-4}": '"schedule.lr" is a key of schedule.kind: no_warmup or linear',
    "schedule: {kind: invers_sqrt}": 'did you mean "inverse_sqrt"?',
    "segment: {kind: bpe}": "segment.kind",
    "model: {norm: layer-norm}": 'did you mean "layernorm"?',
    "model: {heads: 3}": "model.heads (3) must divide model.dim (512)",
    "model: {dropout: 1.5}": "r.yaml:4:18: model.dropout",
    "model: {dim: 08x}": "is not an integer",
    "model: {dim: 2026-01-01}": '"2026-01-01" is not an integer',
    "data: {train: b, dev: c}": "given twice, first at r.yaml:3:1",
    "data.batch_tokens: 5": "unknown key",
    "optim: {accumulate: 0}": "must be at least 1",
    "train: {epoch_updates: -5}": "must be at least 1",
    "schedule: {kind: constant}": 'required key "schedule.lr" is missing',
    "schedule: {kind: constant, lr: 0}": "must be above 0",
    "schedule: {kind: no_warmup, lr: nan}": "schedule.lr",
    "schedule: {kind: no_warmup, lr: 1e-7}": "train.min_lr (1e-06) is not below schedule.lr",
    "model: {scalenorm_gain: fixed, norm: rmsnorm}": "contradicts model.norm: rmsnorm",
    "model: {normformer: true, ffn_norm: false}": "contradicts model.ffn_norm: false",
    "model: {extra_norm: rmsnorm}": "has no effect without one of model.post_attn_norm",
    "score: {select_by: chrf, metrics: [bleu]}": "not among score.metrics",
    "model: {bias: maybe}": "is neither true nor false",
    "device: gpu": "device",
    "seed: [1]": "seed",
    "model: 3": "must be a group of keys",
    "model:\n\tdim: 3": "r.yaml:5:1: not YAML",
    "model: {dim: [": "not YAML",
    "x: !!python/object:os.system {}": "tag",
    "model: &a {dim: 4}": "anchors and aliases",
    "decode: {beam: 0}": "must be at least 1",
}


@pytest.mark.parametrize("text", FAULTS, ids=range(len(FAULTS)))
def test_each_fault_is_named_with_its_place(text: str):
    with pytest.raises(UserError) as error:
        recipe_from_text(HEAD + text, "r.yaml")
    assert FAULTS[text] in str(error.value)
    assert "pydantic" not in str(error.value).lower()
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just text"])
def test_no_mapping_is_no_recipe(text: str):
    with pytest.raises(UserError, match="a recipe is a mapping"):
        recipe_from_text(text, "r.yaml")


def test_missing_keys_are_named():
    with pytest.raises(UserError) as error:
        recipe_from_text("src: gl\ntgt: gl\ndata: {train: a}\n", "r.yaml")
    assert 'required key "data.dev" is missing' in str(error.value)
    with pytest.raises(UserError, match="same language"):
        recipe_from_text(HEAD.replace("tgt: en", "tgt: gl"), "r.yaml")


def test_an_alias_bomb_is_refused_at_once():
    bomb = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(50))
    with pytest.raises(UserError, match="anchors"):
        recipe_from_text(bomb, "r.yaml")


def test_the_command_says_it_and_writes_nothing(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(HEAD + "model: {nrom: pre}\n", encoding="utf-8")
    assert train.main(["r.yaml"]) == 2
    said = capsys.readouterr().err
    assert 'r.yaml:4:9: unknown key "model.nrom"' in said
    assert "Traceback" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["r.yaml"]
    assert train.main(["missing.yaml"]) == 2
    assert "missing.yaml" in capsys.readouterr().err


def test_a_missing_gpu_is_exit_4_before_anything_is_written(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(HEAD, encoding="utf-8")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert train.main(["r.yaml", "device=cuda"]) == 4
    assert "device=cpu" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["r.yaml"]
