"""The keys of a file of variants that are for nmt-sweep, and errors in them."""
# ruff: noqa: E501 (a message is easier to read in one line)

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.apps.sweep.variants import Budget, Range, load_sweep, load_variants
from nmt.config.load import load_recipe
from nmt.errors import UserError

BASE = """\
src: gl
tgt: en
data: {train: a/train, dev: a/dev}
schedule: {kind: linear, lr: 1e-3, total_updates: 900}
"""
FILE = """\
base: r.yaml
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
SEARCH = """\
base: r.yaml
variants: {pre: {about: PreNorm}}
search:
  trials: 7
  space:
    schedule.lr: {low: 1e-4, high: 1e-2, log: true}
    model.enc_layers: {low: 2, high: 6, int: true}
    model.norm: [layernorm, rmsnorm]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with r.yaml and q.yaml."""
    for name in ("r.yaml", "q.yaml"):
        (tmp_path / name).write_text(BASE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str) -> str:
    Path("v.yaml").write_text(text, encoding="utf-8")
    return "v.yaml"


def test_each_variant_exists_for_each_corpus(folder: Path):
    sweep = load_sweep(write(FILE))
    names = ["small/post", "small/pre", "slovak/post", "slovak/pre"]
    assert [v.name for v in sweep.variants] == names
    assert [(v.group, v.own_name) for v in sweep.variants[1:3]] == [
        ("small", "pre"),
        ("slovak", "post"),
    ]
    assert [v.paper for v in sweep.variants] == [{"test": 3.5}, {}, {"test": "fails"}, {}]
    small, slovak = (sweep.variants[i].recipe for i in (0, 2))
    assert (small.src, small.data.train[0].path, small.data.dev[0].path) == (
        "gl",
        str(folder / "s/train"),
        str(folder / "a/dev"),
    )
    assert (slovak.src, slovak.data.dev[0].path) == ("sk", str(folder / "sk/dev"))
    assert (sweep.seeds, sweep.baseline, sweep.search) == ([1, 2], "pre", None)
    assert sweep.budget == Budget(hours=0.5, tokens=2e6)
    # the keys of a sweep do not change what nmt-train trains
    assert load_recipe("v.yaml", variant="slovak/post") == slovak
    assert slovak.time_limit is None


def test_bases_and_corpora_multiply(folder: Path):
    text = FILE.replace("base: r.yaml", "base: [r.yaml, q.yaml]").replace(
        "{small: 3.5, slovak: fails}", "{q/small: 2}"
    )
    variants = load_variants(write(text))
    assert [v.name for v in variants][:5] == [
        "r/small/post", "r/small/pre", "r/slovak/post", "r/slovak/pre", "q/small/post",
    ]  # fmt: skip
    assert variants[4].paper == {"test": 2}
    assert variants[4].group == "q/small"


def test_the_first_variant_is_the_baseline_by_default(folder: Path):
    assert load_sweep(write(FILE.replace("baseline: pre\n", ""))).baseline == "post"


def test_overrides_change_every_variant(folder: Path):
    sweep = load_sweep(write(FILE), ["model.dim=64"])
    assert {v.recipe.model.dim for v in sweep.variants} == {64}


def test_paths_of_a_search_are_relative_to_its_file(folder: Path, monkeypatch):
    path = write(SEARCH + "    segment.codes: [a.codes, sub/b.codes]\n")
    monkeypatch.chdir("/")
    search = load_sweep(folder / path).search
    assert search is not None
    assert search.space["segment.codes"] == [f"{folder}/a.codes", f"{folder}/sub/b.codes"]


def test_a_search_has_ranges_and_lists(folder: Path):
    search = load_sweep(write(SEARCH)).search
    assert search is not None
    assert (search.trials, search.prune) == (7, True)
    assert search.space == {
        "schedule.lr": Range(low=1e-4, high=1e-2, log=True),
        "model.enc_layers": Range(low=2, high=6, int=True),
        "model.norm": ["layernorm", "rmsnorm"],
    }


def test_ends_that_are_whole_numbers_do_not_make_a_range_one_of_whole_numbers(folder: Path):
    search = load_sweep(write(SEARCH + "    optim.clip_norm: {low: 1, high: 4}\n")).search
    assert search.space["optim.clip_norm"] == Range(low=1, high=4)


FAULTS = {
    FILE.replace("baseline: pre", "baseline: prre"): 'v.yaml:12:11: baseline: there is no variant "prre"; did you mean "pre"?',
    FILE.replace("baseline: pre", "baseline: x"): 'v.yaml:12:11: baseline: there is no variant "x"; the variants are post, pre',
    FILE.replace("[1, 2]", "[1, 2, 1]"): "v.yaml:11:8: seeds: 1 is listed twice",
    FILE.replace("hours: 0.5", "hours: 0"): 'v.yaml:13:17: budget.hours: "0" is not a number above 0, or none',
    FILE.replace("hours: 0.5, tokens: 2e6", ""): "v.yaml:13:1: budget: set hours, tokens or both",
    FILE.replace("{src: sk, data:", "{model: {dim: 8}, data:"): 'v.yaml:4:12: corpora.slovak: a corpus sets src, tgt, data, segment, but not "model"; set it in common or in a variant',
    FILE.replace("{small: 3.5, slovak: fails}", "{smal: 3}"): 'v.yaml:8:20: variants.post.paper.test: "smal" is not a base or corpus of this file; did you mean "small"?',
    FILE + "search: {space: {model.dim: [64, 128]}}": "v.yaml:11:8: seeds: a search trains with one seed; remove the others, or remove search",
    SEARCH.replace("high: 1e-2", "high: 1e-5"): "v.yaml:6:5: search.space.schedule.lr: low (0.0001) must be below high (1e-05)",
    SEARCH.replace("low: 1e-4", "low: 0"): "v.yaml:6:44: search.space.schedule.lr.log: true requires low (0) above 0",
    SEARCH.replace("low: 2", "low: 2.5"): "v.yaml:7:48: search.space.model.enc_layers.int: true requires whole numbers as low and high",
    SEARCH.replace(", int: true", ""): "v.yaml:7:23: search.space.model.enc_layers: the key takes whole numbers only; add int: true",
    SEARCH.replace("[layernorm, rmsnorm]", "rmsnorm"): 'v.yaml:8:17: search.space.model.norm: "rmsnorm" is not a list of values, or a range {low: 1e-4, high: 1e-2}',
    SEARCH.replace("[layernorm, rmsnorm]", "[layernorm, rmsnrm]"): 'v.yaml:8:29: model.norm: "rmsnrm" is not layernorm, rmsnorm or scalenorm; did you mean "rmsnorm"?',
    SEARCH.replace("model.norm:", "model.nrm:"): 'v.yaml:8:5: unknown key "model.nrm"; did you mean "norm"?',
    "base: r.yaml\nvariants: {pre: {about: PreNorm}}\nsearch: {trials: 3}": 'v.yaml:3:1: required key "search.space" is missing',
}  # fmt: skip


@pytest.mark.parametrize("text", FAULTS, ids=list(FAULTS.values()))
def test_each_fault_is_an_error_with_its_place(folder: Path, text: str):
    with pytest.raises(UserError) as error:
        load_sweep(write(text))
    assert FAULTS[text] in str(error.value).splitlines()


def test_a_recipe_is_no_sweep(folder: Path):
    with pytest.raises(UserError, match="this is a recipe; a sweep needs a file of variants"):
        load_sweep("r.yaml")
