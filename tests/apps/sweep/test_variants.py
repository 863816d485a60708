"""Files of variants: the recipes that they define, and errors in them."""
# ruff: noqa: E501 (a message is easier to read in one line)

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmt.cli import prepare, train
from nmt.cli.reference import variants_schema
from nmt.config.load import dump_recipe, load_recipe, recipe_from_text
from nmt.config.schedules import InverseSqrt, Linear, NoWarmup
from nmt.config.variants import Budget, load_sweep
from nmt.errors import UserError
from tests.toy import toy_corpus, toy_recipe

BASE = """\
src: gl
tgt: en
out: somewhere
data: {train: a/train, dev: a/dev}
model: {heads: 4, dropout: 0.4}
schedule: {scale: 2, warmup_updates: 7}
"""
FILE = """\
base: r.yaml
common:
  model: {norm: layernorm}
variants:
  post:
    about: PostNorm
    paper: {dev: 28.20, test: fails}
    model: {norm_place: post}
  flat:
    about: without warm-up
    schedule: {kind: no_warmup}
    data: {dev: b/dev}
"""
LINEAR = """\
src: gl
tgt: en
data: {train: a/train, dev: a/dev}
schedule: {kind: linear, lr: 1e-3, total_updates: 900}
"""
SWEEP = """\
base: s.yaml
corpora:
  small: {data: {train: s/train}}
  slovak: {src: sk, data: {train: sk/train, dev: sk/dev}}
variants:
  post:
    about: PostNorm
    paper: {test: {small: 3.5, slovak: fails}}
    model: {norm_place: post}
  pre: {about: PreNorm}
seeds: [1, 2]
baseline: pre
budget: {hours: 0.5, tokens: 2e6}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recipes in the working directory, so that errors name them so."""
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    for name, text in (("r.yaml", BASE), ("q.yaml", BASE), ("s.yaml", LINEAR)):
        (recipes / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(recipes)
    return recipes


def write(text: str) -> str:
    Path("v.yaml").write_text(text, encoding="utf-8")
    return "v.yaml"


def test_a_variant_is_its_base_with_common_and_its_own_changes(folder):
    post, flat = load_sweep(write(FILE)).variants
    assert (post.name, post.about) == ("post", "PostNorm")
    assert post.paper == {"dev": 28.2, "test": "fails"}
    model = post.recipe.model
    assert (model.norm, model.norm_place) == ("layernorm", "post")
    assert (model.heads, model.dropout) == (4, 0.4)
    assert post.recipe.schedule == InverseSqrt(scale=2, warmup_updates=7)
    assert flat.paper == {}
    assert flat.recipe.model.norm_place == "pre"
    # a kind of one's own leaves the base's keys of another kind behind
    assert flat.recipe.schedule == NoWarmup()
    assert load_recipe("v.yaml", variant="flat") == flat.recipe


def test_the_kind_of_a_variant_replaces_the_common_kind_and_its_keys(folder):
    text = FILE.replace("common:", "common:\n  schedule: {kind: linear, lr: 1, total_updates: 900}")
    post, flat = load_sweep(write(text)).variants
    assert post.recipe.schedule == Linear(lr=1, total_updates=900, warmup_updates=7)
    assert flat.recipe.schedule == NoWarmup(lr=1)  # lr is a key of both


def test_a_dumped_variant_reads_back_equal(folder):
    recipe = load_recipe(write(FILE), variant="post")
    assert recipe_from_text(dump_recipe(recipe), "config.yaml") == recipe


def test_paths_are_relative_to_their_file_and_each_variant_has_a_run_folder(folder, monkeypatch):
    (folder / "deep").mkdir()
    (folder / "deep" / "v.yaml").write_text(FILE.replace("r.yaml", "../r.yaml"), encoding="utf-8")
    monkeypatch.chdir(folder.parent)
    recipe = load_recipe("recipes/deep/v.yaml", ["data.train=c/train"], "flat")
    assert [entry.path for entry in recipe.data.train] == [str(folder.parent / "c/train")]
    assert recipe.data.dev[0].path == str(folder / "deep/b/dev")
    assert load_recipe("recipes/deep/v.yaml", (), "post").data.dev[0].path == str(folder / "a/dev")
    assert recipe.out == str(Path("runs/v/flat"))


def test_overrides_come_last(folder):
    path = write(FILE)
    recipe = load_recipe(path, ["model.norm_place=pre", "out=x"], "post")
    assert (recipe.model.norm_place, recipe.model.norm, recipe.out) == ("pre", "layernorm", "x")
    with pytest.raises(UserError, match=r'^command line: unknown key "model\.nrom"'):
        load_recipe(path, ["model.nrom=x"], "post")


def test_each_variant_exists_for_each_base(folder):
    text = FILE.replace("base: r.yaml", "base: [r.yaml, q.yaml]").replace(
        "{dev: 28.20, test: fails}", "{dev: {r: 1.5, q: fails}}"
    )
    variants = load_sweep(write(text)).variants
    assert [v.name for v in variants] == ["r/post", "r/flat", "q/post", "q/flat"]
    assert [v.paper for v in variants] == [{"dev": 1.5}, {}, {"dev": "fails"}, {}]
    assert variants[2].recipe.out == str(Path("runs/v/q/post"))


def test_each_variant_exists_for_each_corpus(folder):
    sweep = load_sweep(write(SWEEP))
    names = ["small/post", "small/pre", "slovak/post", "slovak/pre"]
    assert [v.name for v in sweep.variants] == names
    assert [v.group for v in sweep.variants] == ["small", "small", "slovak", "slovak"]
    assert [v.own_name for v in sweep.variants] == ["post", "pre", "post", "pre"]
    assert [v.paper for v in sweep.variants] == [{"test": 3.5}, {}, {"test": "fails"}, {}]
    small, slovak = (sweep.variants[i].recipe for i in (0, 2))
    paths = [entry.path for entry in (*small.data.train, *small.data.dev)]
    assert (small.src, paths) == ("gl", [str(folder / "s/train"), str(folder / "a/dev")])
    assert (slovak.src, slovak.data.dev[0].path) == ("sk", str(folder / "sk/dev"))
    assert (sweep.seeds, sweep.baseline) == ([1, 2], "pre")
    assert sweep.budget == Budget(hours=0.5, tokens=2e6)
    # the keys of a sweep do not change what nmt-train trains
    assert load_recipe("v.yaml", variant="slovak/post") == slovak
    assert slovak.time_limit is None


def test_bases_and_corpora_multiply(folder):
    text = SWEEP.replace("base: s.yaml", "base: [s.yaml, q.yaml]").replace(
        "{small: 3.5, slovak: fails}", "{q/small: 2}"
    )
    variants = load_sweep(write(text)).variants
    assert [v.name for v in variants][:5] == [
        "s/small/post", "s/small/pre", "s/slovak/post", "s/slovak/pre", "q/small/post",
    ]  # fmt: skip
    assert variants[4].paper == {"test": 2}
    assert variants[4].group == "q/small"


def test_the_first_variant_is_the_baseline_by_default(folder):
    assert load_sweep(write(SWEEP.replace("baseline: pre\n", ""))).baseline == "post"


def test_overrides_change_every_variant(folder):
    sweep = load_sweep(write(SWEEP), ["model.dim=64"])
    assert {v.recipe.model.dim for v in sweep.variants} == {64}


def test_without_a_choice_the_error_lists_the_variants(folder):
    with pytest.raises(UserError) as error:
        load_recipe(write(FILE))
    assert str(error.value).splitlines() == [
        "v.yaml: lists 2 variants of a recipe",
        "  -> choose one with --variant:",
        "     post  PostNorm",
        "     flat  without warm-up",
    ]
    with pytest.raises(UserError, match=r'^v\.yaml: has no variant "pst"; did you mean "post"\?'):
        load_recipe("v.yaml", variant="pst")


def test_a_recipe_has_no_variants(folder):
    message = "^r.yaml: this is a recipe; it has no variants"
    with pytest.raises(UserError, match=message):
        load_recipe("r.yaml", variant="post")
    with pytest.raises(UserError, match="this is a recipe; a sweep needs a file of variants"):
        load_sweep("r.yaml")


HEAD = "base: r.yaml\nvariants:\n"
FAULTS = {
    "base: rr.yaml\nvariants: {a: {about: x}}": '1:7: base: there is no file rr.yaml; did you mean "r.yaml"?',
    "base: [r.yaml, v.yaml]\nvariants: {a: {about: x}}": "1:16: base: v.yaml is a file of variants; a base must be a recipe",
    "base: [r.yaml, ./r.yaml]\nvariants: {a: {about: x}}": '1:16: base: two recipes are called "r"',
    "base: []\nvariants: {a: {about: x}}": "1:7: base: [] is not the path of a recipe, or a list of them",
    "base: r.yaml": 'required key "variants" is missing',
    "base: r.yaml\nvariants: {}": "2:11: variants: {} is not a group of keys; it must have at least one",
    "base: r.yaml\nvariants: {a: b}": '2:15: variants.a: "b" is not a group of keys',
    "base: r.yaml\nvariants: {../a: {about: x}}": '2:12: "../a" is not a valid name; a name has letters, digits, ".", "_" and "-", and begins with a letter or digit',
    HEAD + "  a: {}": '3:3: required key "variants.a.about" is missing',
    HEAD + "  a: {about: x, paper: {tset: 1}}": '3:25: unknown key "variants.a.paper.tset"; did you mean "test"?',
    HEAD + "  a: {about: x, paper: {dev: bad}}": '3:30: variants.a.paper.dev: "bad" is not a number or fails; for several bases, one for each: {gl-en: 18.47, sk-en: fails}',
    HEAD + "  a: {about: x, paper: {dev: {r: 1, s: 2}}}": '3:31: variants.a.paper.dev: "r" is not a base or corpus of this file; it has only one',
    HEAD + "  a: {about: x}\n  a: {about: y}": '4:3: key "variants.a" is set twice, first at v.yaml:3:3',
    HEAD + "  a: {about: x, model: {nrom: pre}}": '3:25: unknown key "model.nrom"; did you mean "norm"?',
    HEAD + "  a: {about: x, model: {heads: 3}}": "3:25: model.heads (3) must divide model.dim (512)",
    HEAD + "  a: {about: x, model: {dim: 6}}": "r.yaml:5:9: model.heads (4) must divide model.dim (6)",
    HEAD + "  a: {about: x, optim: {betas: [0.9, 2]}}": '3:38: optim.betas: "2" is not a number of at least 0 and below 1',
    HEAD + "  a: {about: x, data: {dev: {x: 3}}}": '3:30: unknown key "data.dev.x"; data.dev has path, src, tgt, tag, tgt_tag, tokenized, name, select, other_refs',
    HEAD + "  a: {about: x, schedule: {lr: 3}}": '3:28: "schedule.lr" is a key of kind: no_warmup, linear or constant, but schedule.kind is inverse_sqrt',
    HEAD + "  a: {about: x}\n  b: {about: y, model: {heads: 4}, optim: }": '4:3: variant "b" gives the same recipe as "a" at v.yaml:3:3',
    SWEEP.replace("baseline: pre", "baseline: prre"): '12:11: baseline: there is no variant "prre"; did you mean "pre"?',
    SWEEP.replace("baseline: pre", "baseline: x"): '12:11: baseline: there is no variant "x"; the variants are post, pre',
    SWEEP.replace("[1, 2]", "[1, 2, 1]"): "11:8: seeds: 1 is listed twice",
    SWEEP.replace("hours: 0.5", "hours: 0"): '13:17: budget.hours: "0" is not a number above 0, or none',
    SWEEP.replace("hours: 0.5, tokens: 2e6", ""): "13:1: budget: set hours, tokens or both",
    SWEEP.replace("{src: sk, data:", "{model: {dim: 8}, data:"): '4:12: corpora.slovak: a corpus sets src, tgt, data, segment, but not "model"; set it in common or in a variant',
    SWEEP.replace("{small: 3.5, slovak: fails}", "{smal: 3}"): '8:20: variants.post.paper.test: "smal" is not a base or corpus of this file; did you mean "small"?',
}  # fmt: skip


@pytest.mark.parametrize("text", FAULTS, ids=list(FAULTS.values()))
def test_each_fault_is_an_error_with_its_place(folder, text):
    with pytest.raises(UserError) as error:
        load_sweep(write(text))
    message = FAULTS[text]
    inside = message.startswith(("r.yaml", "required key"))
    expected = {message, f"v.yaml: {message}"} if inside else {f"v.yaml:{message}"}
    assert expected & set(str(error.value).splitlines()), str(error.value)


def test_one_error_has_every_fault_of_every_variant(folder):
    text = (
        HEAD + "  a: {about: x, modl: {dim: 4}}\n  b: {paper: {dev: 3}}\n  c: {about: z, seed: x}\n"
    )
    with pytest.raises(UserError) as error:
        load_recipe(write(text), variant="c")
    assert [line.partition(": ")[0] for line in error.value.what.splitlines()] == [
        "3 errors in the recipe",
        "v.yaml:3:17",
        "v.yaml:4:3",
        "v.yaml:5:23",
    ]


@pytest.mark.parametrize("nothing", ["", "~", "none", "{}"])
def test_an_empty_group_changes_nothing(folder, nothing):
    text = HEAD + f"  a: {{about: x, model: {nothing}}}\n"
    (variant,) = load_sweep(write(text)).variants
    assert variant.recipe.model.dropout == 0.4


def test_the_commands_take_a_variant(tmp_path, monkeypatch, capsys):
    toy_corpus(tmp_path, {"train": 30, "dev": 2, "test": 2})
    toy_recipe(tmp_path)
    text = "base: toy.yaml\nvariants:\n  rms: {about: RMSNorm, model: {norm: rmsnorm}}\n"
    (tmp_path / "v.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert prepare.main(["v.yaml"]) == 2
    assert "rms  RMSNorm" in capsys.readouterr().err
    assert prepare.main(["v.yaml", "--variant", "rms"]) == 0
    capsys.readouterr()
    assert train.main(["v.yaml", "--variant", "rms", "--fresh", "--dry-run"]) == 0
    next_step = "ready to train; next: nmt-train v.yaml --variant rms --fresh\n"
    assert capsys.readouterr().err.endswith(next_step)
    assert not Path("runs/v/rms").exists()


def test_the_resume_command_includes_the_variant():
    args = train.parser().parse_args(["v.yaml", "seed=2", "--variant", "a b"])
    words = "v.yaml seed=2 --variant 'a b' --resume"
    assert train.train_command(args, 1, "--resume") == f"nmt-train {words}"
    assert (
        train.train_command(args, 2, "--resume")
        == f"torchrun --nproc-per-node 2 -m nmt.cli.train {words}"
    )


def test_the_schema_of_a_variant_requires_no_recipe_keys():
    schema = json.loads(variants_schema())
    (variant,) = schema["properties"]["variants"]["patternProperties"].values()
    assert variant["required"] == ["about"]
    assert "required" not in schema["$defs"]["DataConfig"]


NAMES = ["base", "common", "variants", "about", "paper", "dev", "a", "model", "norm", "schedule"]
junk = st.sampled_from(["", "none", "r.yaml", "3", "fails", "linear", "x"])
shapes = st.recursive(
    junk,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=10,
)
variant_shapes = st.dictionaries(st.sampled_from(["about", "paper", "model", "kind"]), shapes)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "base": junk | st.lists(junk, max_size=3),
            "common": shapes,
            "variants": shapes | st.dictionaries(st.sampled_from("ab"), variant_shapes),
            "model": shapes,
        },
    )
)
def test_any_shape_is_variants_or_a_user_error(folder, values):
    """Groups as lists, lists as groups, wrong figures: always a message, never a crash."""
    with contextlib.suppress(UserError):
        load_sweep(write(yaml.safe_dump(values)))
