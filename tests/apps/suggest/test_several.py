"""nmt-suggest with several corpora: one recipe with entries, tags and weights for each."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from nmt.apps.suggest.choices import suggest
from nmt.apps.suggest.corpus import CorpusPaths, find_corpus
from nmt.apps.suggest.several import collect_all, joined, with_all_corpora
from nmt.cli import suggest as command
from nmt.cli import train
from nmt.config.recipe import Recipe
from tests.toy import write_lines


def corpus(folder: Path, src: str, tgt: str, pairs: int, end: str = ".") -> CorpusPaths:
    """Write train, dev and test of random words."""
    rng = Random(f"{src}{tgt}")
    for split, size in (("train", pairs), ("dev", 20), ("test", 20)):
        for lang in (src, tgt):
            words = [f"{lang}{i}" for i in range(50)]
            lines = [f"{' '.join(rng.choices(words, k=6))}{end}" for _ in range(size)]
            write_lines(folder / f"{src}-{tgt}" / f"{split}.{lang}", lines)
    return find_corpus(str(folder / f"{src}-{tgt}" / "train"), src, tgt)


def suggested(corpora: list[CorpusPaths]) -> Recipe:
    parts = collect_all(corpora, progress=False)
    facts = joined(parts)
    assert facts.pairs == sum(part.pairs for part in parts)
    assert len(facts.sample) == facts.pairs
    suggestion = suggest(corpora[0], facts, gpu=False, parts=parts)
    found = with_all_corpora(suggestion, corpora, parts)
    return Recipe.model_validate(found.values())


def test_targets_have_tags_and_small_corpora_weights(tmp_path):
    corpora = [corpus(tmp_path, "es", tgt, pairs) for tgt, pairs in (("shp", 900), ("gn", 400))]
    recipe = suggested(corpora)
    first, second = recipe.data.train
    assert (first.tgt, first.tgt_tag, first.weight) == (None, "<shp>", 1)
    assert (second.tgt, second.tgt_tag, second.weight) == ("gn", "<gn>", 1.5)  # sqrt(900 / 400)
    assert [entry.tgt_tag for entry in recipe.data.dev] == ["<shp>", "<gn>"]
    assert [entry.label(recipe) for entry in recipe.data.test] == ["es-shp", "es-gn"]


def test_sources_need_no_tags_and_each_set_has_its_form_and_name(tmp_path):
    corpora = [
        corpus(tmp_path / "a", "gl", "en", 300),
        corpus(tmp_path / "b", "pt", "en", 300, end=" ."),
        corpus(tmp_path / "c", "gl", "en", 300),
    ]
    recipe = suggested(corpora)
    assert [entry.src for entry in recipe.data.train] == [None, "pt", None]
    assert {entry.tgt_tag for entry in recipe.data.train} == {None}
    assert not recipe.data.tokenized
    assert [entry.tokenized for entry in recipe.data.train] == [None, True, None]
    assert [entry.label(recipe) for entry in recipe.data.dev] == ["gl-en-1", "pt-en", "gl-en-3"]


def test_corpora_of_one_folder_share_dev_and_test(tmp_path):
    first = corpus(tmp_path, "es", "shp", 300)
    folder = Path(first.train).parent
    for lang in ("es", "shp"):
        write_lines(folder / f"extra.{lang}", (folder / f"train.{lang}").read_text().splitlines())
    recipe = suggested([first, find_corpus(str(folder / "extra"), "es", "shp")])
    assert [Path(entry.path).name for entry in recipe.data.train] == ["train", "extra"]
    for name, entries in (("dev", recipe.data.dev), ("test", recipe.data.test)):
        assert [(Path(entry.path).name, entry.name) for entry in entries] == [(name, None)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_one_target_with_many_forms_decides_scores_and_search(tmp_path, order):
    """The languages of both corpora together do not look like one with many forms."""
    plain = corpus(tmp_path, "es", "en", 900)
    rich = corpus(tmp_path, "es", "shp", 300)
    folder = Path(rich.train).parent
    lines = [" ".join(f"{i}shp{j}" for j in range(5)) + " ." for i in range(300)]
    write_lines(folder / "train.shp", lines)
    recipe = suggested([[plain, rich][i] for i in order])
    assert recipe.score.select_by == "chrf++"
    assert (recipe.decode.length_alpha, recipe.decode.no_repeat_ngram) == (2.0, 3)
    assert suggested([plain, plain]).score.select_by == "bleu"


@pytest.mark.slow
def test_the_command_takes_several_corpora_but_not_with_a_parent(tmp_path, capsys):
    prefixes = [corpus(tmp_path, "es", tgt, 300).train for tgt in ("shp", "gn")]
    recipe = tmp_path / "recipe.yaml"
    languages = ["--src-lang", "es"]
    assert command.main([*prefixes, *languages, "-o", str(recipe)]) == 0
    assert train.main([str(recipe), "--dry-run", "data.checks=warn"]) == 0
    capsys.readouterr()
    assert command.main([*prefixes, *languages, "--parent", str(tmp_path)]) == 2
    assert "--parent" in capsys.readouterr().err
