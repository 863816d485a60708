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
    found = with_all_corpora(suggest(corpora[0], facts, gpu=False), corpora, parts)
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
