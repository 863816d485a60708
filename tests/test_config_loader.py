"""Recipes: what is read, what is resolved, and what reads back."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.config import FastBpeConfig, ModelConfig, Recipe
from nmt.config_loader import changed_keys, dump_recipe, load_recipe, recipe_from_text
from nmt.errors import UserError

MINIMAL = "src: gl\ntgt: en\ndata: {train: a/train, dev: a/dev}\n"


def read(text: str = "", *overrides: str) -> Recipe:
    return recipe_from_text(MINIMAL + text, "r.yaml", overrides)


def test_defaults_are_the_papers():
    recipe = read()
    assert (recipe.model.dim, recipe.model.ffn_dim, recipe.model.heads) == (512, 2048, 8)
    assert (recipe.model.norm, recipe.model.norm_place, recipe.model.fixnorm) == (
        "scalenorm",
        "pre",
        True,
    )
    assert recipe.schedule.kind == "inverse_sqrt"
    assert recipe.schedule.warmup_updates == 8000
    assert recipe.optim.betas == (0.9, 0.999)
    assert recipe.segment == FastBpeConfig()
    assert recipe.data.train == ["a/train"]


@pytest.mark.parametrize("text", ["3e-4", "0.0003", "3.0e-4", "'3e-4'"])
def test_numbers_are_the_schemas_not_yamls(text: str):
    assert read(f"schedule: {{kind: no_warmup, lr: {text}}}").schedule.lr_start == 3e-4


@pytest.mark.parametrize("code", ["no", "on", "off", "y", "yes", "nan", "none"])
def test_languages_are_text(code: str):
    text = MINIMAL.replace("src: gl", f"src: {code}")
    assert recipe_from_text(text, "r.yaml").src == code


def test_none_is_none_where_a_key_is_optional():
    assert read("model: {attn_dropout: none}\ntime_limit: ~").model.attn_dropout is None
    assert read("", "data.test=none").data.test is None


def test_overrides_take_the_same_path():
    recipe = read(
        "model: {norm: rmsnorm}", "model.norm=layernorm", "seed=7", "optim.betas=[0.9, 0.98]"
    )
    assert (recipe.model.norm, recipe.seed, recipe.optim.betas) == ("layernorm", 7, (0.9, 0.98))


def test_an_override_of_kind_replaces_the_other_kinds_keys():
    recipe = read("schedule: {kind: inverse_sqrt, scale: 2}", "schedule.kind=no_warmup")
    assert recipe.schedule.kind == "no_warmup"


def test_paths_are_relative_to_the_recipe_and_out_to_here(tmp_path: Path, monkeypatch):
    folder = tmp_path / "recipes with space ñ"
    folder.mkdir()
    (folder / "my.yaml").write_text(MINIMAL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(folder / "my.yaml")
    assert recipe.data.dev == str(folder / "a/dev")
    assert recipe.out == str(Path("runs/my"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_recipe(folder / "my.yaml", ["data.dev=~/d"]).data.dev == str(tmp_path / "d")
    assert load_recipe(folder / "my.yaml", ["data.dev=b/d"]).data.dev == str(tmp_path / "b/d")


@pytest.mark.parametrize("text", ["\ufeff" + MINIMAL, MINIMAL.replace("\n", "\r\n")])
def test_bom_and_crlf_change_nothing(tmp_path: Path, text: str):
    for name, content in (("a.yaml", text), ("b.yaml", MINIMAL)):
        (tmp_path / name).write_bytes(content.encode())
    a, b = (load_recipe(tmp_path / name, ["out=x"]) for name in ("a.yaml", "b.yaml"))
    assert a == b


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["model.normformer=true", "model.res_scale=ffn", "model.extra_norm=rmsnorm"],
        ["schedule.kind=linear", "schedule.lr=1e-3", "schedule.total_updates=5000"],
        ["segment.kind=sentencepiece", "data.test=t", "time_limit=1.5"],
    ],
)
def test_a_dumped_recipe_reads_back_equal(overrides: list[str]):
    recipe = read("", *overrides)
    assert recipe_from_text(dump_recipe(recipe), "config.yaml") == recipe


def test_changed_keys_are_listed():
    changed = changed_keys(read(), read("", "model.norm=layernorm", "schedule.kind=no_warmup"))
    assert changed[0] == "model.norm: scalenorm -> layernorm"
    assert "schedule.kind: inverse_sqrt -> no_warmup" in changed
    assert changed_keys(read(), read()) == []


def test_normformer_is_a_preset():
    model = read("model: {normformer: true}").model
    assert (model.head_scale, model.post_attn_norm, model.ffn_norm) == (True, True, True)
    assert ModelConfig().head_scale is False


def test_all_errors_at_once():
    with pytest.raises(UserError) as error:
        read("model:\n  nrom: layernorm\n  dim: 1:30\n  dropout: 1.5", "seed=x")
    lines = str(error.value).splitlines()
    assert lines[0] == 'r.yaml:5:3: unknown key "model.nrom"; did you mean "norm"?'
    assert 'r.yaml:6:8: model.dim: "1:30" is not an integer' in lines
    assert any(line.startswith("r.yaml:7:12: model.dropout:") for line in lines)
    assert 'command line: seed: "x" is not an integer' in lines
