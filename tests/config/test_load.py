"""Recipes from text: types, overrides, paths, errors, and dumps that read back."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nmt.config.load import as_recipe, changed_keys, dump_recipe, load_recipe, recipe_from_text
from nmt.config.merge import MAX_BYTES
from nmt.config.recipe import DataConfig, OptimConfig, Recipe, groups
from nmt.config.schedules import Constant, Linear
from nmt.config.schema import NONE
from nmt.errors import UserError

MINIMAL = "src: gl\ntgt: en\ndata: {train: a/train, dev: a/dev}\n"


def read(text: str = "", *overrides: str) -> Recipe:
    return recipe_from_text(MINIMAL + text, "r.yaml", overrides)


@pytest.mark.parametrize("text", ["3e-4", "0.0003", "3.0e-4", "'3e-4'", "3E-04", ".0003"])
def test_the_key_decides_the_type_of_a_number(text: str):
    assert read(f"schedule: {{kind: no_warmup, lr: {text}}}").schedule.lr_start == 3e-4


@pytest.mark.parametrize("code", ["no", "on", "off", "y", "yes", "nan", "none"])
def test_languages_are_text(code: str):
    text = MINIMAL.replace("src: gl", f"src: {code}")
    assert recipe_from_text(text, "r.yaml").src == code


def test_none_is_none_where_a_key_is_optional():
    assert read("model: {attn_dropout: none}\ntime_limit: ~").model.attn_dropout is None
    assert read("", "data.test=none").data.test is None


def test_overrides_are_read_like_values_of_a_file():
    recipe = read(
        "model: {norm: rmsnorm}", "model.norm=layernorm", "seed=7", "optim.betas=[0.9, 0.98]"
    )
    assert (recipe.model.norm, recipe.seed, recipe.optim.betas) == ("layernorm", 7, (0.9, 0.98))


def test_an_override_of_kind_removes_keys_of_other_kinds_only():
    text = "schedule: {scale: 2, warmup_updates: 7}\noptim: {kind: adam, eps: 1e-7}"
    # in either order
    for overrides in (
        ["schedule.kind=linear", "schedule.lr=1", "schedule.total_updates=9"],
        ["schedule.total_updates=9", "schedule.lr=1", "schedule.kind=linear"],
    ):
        recipe = read(text, "optim.kind=radam", *overrides)
        assert recipe.schedule == Linear(lr=1, warmup_updates=7, total_updates=9)
        assert (recipe.optim.kind, recipe.optim.eps) == ("radam", 1e-7)
    with pytest.raises(UserError, match=r'unknown key "schedule\.scael"'):
        read("schedule: {scael: 2}", "schedule.kind=no_warmup")


def test_an_override_creates_a_missing_group():
    assert read("model:\nseed: 2", "model.dim=64", "decode.beam=2").model.dim == 64


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=1 seed=2", '"seed" is set twice'),
        ("seed", '"seed" is not key=value, for example model.norm=layernorm'),
        ("\udcff=3", '"\udcff=3" is not key=value, for example model.norm=layernorm'),
        ("model..dim=3", '"model..dim=3" is not key=value, for example model.norm=layernorm'),
        ("model.nrom=pre", 'unknown key "model.nrom"; did you mean "norm"?'),
        ("nosuch.dim=3", 'unknown key "nosuch"; the top level has task, src, tgt, out, seed'),
        ("seed.x=3", "seed: a group of keys is not an integer"),
        ("data.dev.x=3", 'data.dev.x=3: "data.dev" is not a group of keys'),
        ("optim.betas=[0.9,2]", 'optim.betas: "2" is not a number of at least 0 and below 1'),
        ("optim.betas=[0.9", "optim.betas=[0.9: not YAML: a comma or a closing bracket is missing"),
        ("optim.betas=[*a]", "optim.betas=[*a]: anchors and aliases (&, *) are not allowed"),
        ("data.dev=", 'data.dev: "" is not a path prefix'),
        ("model.heads=3", "model.heads (3) must divide model.dim (512)"),
    ],
)
def test_a_wrong_override_is_an_error_of_the_command_line(override: str, message: str):
    with pytest.raises(UserError) as error:
        read("", *override.split(" "))
    assert str(error.value).startswith(f"command line: {message}")


def test_errors_of_the_recipe_and_of_overrides_are_told_apart():
    values = {"src": "gl", "tgt": "en", "data": {"train": "a", "dev": "b"}, "model": {"dropout": 2}}
    with pytest.raises(UserError) as error:
        as_recipe(values, ["model.dim=0"])
    assert [line.partition(": ")[::2] for line in error.value.what.splitlines()[1:]] == [
        ("recipe", 'model.dropout: "2" is not a number of at least 0 and below 1'),
        ("command line", 'model.dim: "0" is not an integer from 2 to 16384'),
    ]
    with pytest.raises(UserError, match=r'^command line: model: "x" is not a group of keys'):
        read("model: {dim: 64}", "model=x")


def test_an_empty_group_has_the_defaults():
    assert read("model:\nschedule:\nsegment: ~\noptim: {}") == read()


def test_paths_are_relative_to_the_recipe_and_out_to_the_working_directory(
    tmp_path: Path, monkeypatch
):
    folder = tmp_path / "recipes with space ñ"
    folder.mkdir()
    (folder / "my.yaml").write_text(MINIMAL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(folder / "my.yaml")
    assert recipe.data.dev[0].path == str(folder / "a/dev")
    assert recipe.out == str(Path("runs/my"))
    for out in (".", "..", "../recipes/.."):
        resolved = load_recipe(folder / "my.yaml", [f"out={out}"]).out
        assert resolved == str(tmp_path if out == "." else tmp_path.parent)
    monkeypatch.setenv("HOME", str(tmp_path))
    for prefix, path in {"~/d": "d", "b/d": "b/d"}.items():
        recipe = load_recipe(folder / "my.yaml", [f"data.dev={prefix}"])
        assert recipe.data.dev[0].path == str(tmp_path / path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.train", "/b\udcff"),
        ("data.test", "/b\udcff"),
        ("segment.codes", "/b\udcff"),
        ("init.from", "/b\udcff"),
        ("data.train", "[a/train, b\udcff]"),
        ("data.train", "{path: b\udcff, tag: <bt>}"),
    ],
)
def test_a_path_that_is_not_utf8_is_an_error(key: str, value: str):
    with pytest.raises(UserError) as error:
        read("", f"{key}={value}")
    assert str(error.value) == (
        f"command line: {value}: this path has bytes that are not UTF-8\n"
        "  -> rename the file or folder"
    )


@pytest.mark.parametrize("text", ["\ufeff" + MINIMAL, MINIMAL.replace("\n", "\r\n")])
def test_bom_and_crlf_change_nothing(tmp_path: Path, text: str):
    for name, content in (("a.yaml", text), ("b.yaml", MINIMAL)):
        (tmp_path / name).write_bytes(content.encode())
    a, b = (load_recipe(tmp_path / name, ["out=x"]) for name in ("a.yaml", "b.yaml"))
    assert a == b


def test_changed_keys_are_listed():
    changed = changed_keys(read(), read("", "model.norm=layernorm", "schedule.kind=no_warmup"))
    assert next(iter(changed.items())) == ("model.norm", "scalenorm -> layernorm")
    assert changed["schedule.kind"] == "inverse_sqrt -> no_warmup"
    assert changed["schedule.scale"] == "1.0 -> none"
    assert changed_keys(read(), read()) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [(text, True) for text in ("true", "yes", "on", "True", "'true'")]
    + [(text, False) for text in ("false", "no", "off")],
)
def test_normformer_is_a_preset_however_true_is_written(text: str, expected: bool):
    model = read(f"model: {{normformer: {text}}}").model
    assert (model.head_scale, model.post_attn_norm, model.ffn_norm) == (expected,) * 3


def test_all_errors_at_once_in_the_order_of_the_file():
    with pytest.raises(UserError) as error:
        read("model:\n  nrom: layernorm\n  dim: 1:30\n  dropout: 1.5\nsed: 1\nsed: 2", "seed=x")
    assert error.value.what.splitlines() == [
        "6 errors in the recipe",
        'r.yaml:5:3: unknown key "model.nrom"; did you mean "norm"?',
        'r.yaml:6:8: model.dim: "1:30" is not an integer from 2 to 16384',
        'r.yaml:7:12: model.dropout: "1.5" is not a number of at least 0 and below 1',
        'r.yaml:8:1: unknown key "sed"; did you mean "seed"?',
        'r.yaml:9:1: key "sed" is set twice, first at r.yaml:8:1',
        'command line: seed: "x" is not an integer from 0 to 4294967295',
    ]


def test_missing_keys_and_groups_are_errors():
    with pytest.raises(UserError) as error:
        recipe_from_text("src: gl\ndata: {train: a}\n", "r.yaml")
    assert error.value.what.splitlines()[1:] == [
        'r.yaml: required key "tgt" is missing',
        'r.yaml:2:1: required key "data.dev" is missing',
    ]
    with pytest.raises(UserError, match='required group "data" is missing; it needs train and dev'):
        recipe_from_text("src: gl\ntgt: en\n", "r.yaml")


FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = [
    path
    for path in sorted(FOLDER.rglob("*.yaml"))
    if "\nbase:" not in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", RECIPES, ids=[path.stem for path in RECIPES])
def test_every_shipped_recipe_survives_a_dump(path: Path):
    recipe = load_recipe(path)
    assert recipe_from_text(dump_recipe(recipe), "config.yaml") == recipe


@pytest.mark.parametrize(
    ("name", "place", "what"),
    [
        ("none.yaml", "none.yaml", "No such file"),
        (".", ".", "Is a directory"),
        ("latin.yaml", "latin.yaml:2", "not UTF-8"),
        ("big.yaml", "big.yaml", "over 262,144 bytes"),
        ("/dev/zero", "/dev/zero", "not a regular file"),
    ],
)
def test_a_file_that_cannot_be_a_recipe_is_an_error(tmp_path, monkeypatch, name, place, what):
    monkeypatch.chdir(tmp_path)
    Path("latin.yaml").write_bytes("src: gl\n# ma\xf1\n".encode("latin-1"))
    Path("big.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(UserError, match=what) as error:
        load_recipe(name)
    assert error.value.at == place


texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff"),
    min_size=1,
).filter(lambda text: text.lower() not in NONE)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    path=texts, out=texts, lr=st.floats(1e-5, 10), eps=st.floats(1e-30, 1), seed=st.integers(0, 9)
)
def test_any_dumped_recipe_reads_back_equal(path: str, out: str, lr: float, eps: float, seed: int):
    """config.yaml keeps paths of any characters and numbers of any size."""
    recipe = Recipe(
        src="no",
        tgt="on",
        out=out,
        seed=seed,
        data=DataConfig(train=[path, "yes"], dev=path, test="1:30"),
        schedule=Constant(lr=lr),
        optim=OptimConfig(eps=eps, betas=(0.1, 0.9)),
    )
    assert recipe_from_text(dump_recipe(recipe), "config.yaml") == recipe


@settings(max_examples=100, deadline=None)
@given(st.text("ab:{}[]&*!|>'\"#%@-?,\t\n \u0085\x07\ufeff0_") | st.text())
def test_any_text_is_a_recipe_or_a_user_error(text: str):
    with pytest.raises(UserError):  # it has no src, tgt and data
        recipe_from_text(text, "r.yaml")


OTHERS = ["kind", "seed", "dim", "lr", "train", "betas", "metrics", "zzz", "", "codes", "linear"]
NAMES = [*groups(), *OTHERS]
junk = st.sampled_from(["", "none", "3", "08", "x", "true", "linear", "whitespace"])
values = st.recursive(
    junk,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), values, min_size=1, max_size=5))
def test_any_wrong_shape_is_a_user_error(recipe: dict[str, Any]):
    """Groups as lists, lists as groups, wrong kinds: always a message, never a crash."""
    with pytest.raises(UserError, match=r"r\.yaml"):  # it has no src and tgt
        recipe_from_text(yaml.safe_dump(recipe), "r.yaml")


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["seed", "model.dim", "model", "segment", "segment.kind", "segment.codes"]),
    st.text() | st.text("[]{}:, a0_", max_size=8).map("[{}]".format),
)
@example("segment.codes", "[[a]]")
@example("data.train", "[{a: b}]")
@example("segment.kind", "[a]")
@example("seed", "0" * 5000)  # more digits than int() takes
def test_any_override_is_applied_or_a_user_error(key: str, text: str):
    with contextlib.suppress(UserError):
        read("", f"{key}={text}")
