"""Text of a large neighbor: which commands make it, and how a recipe takes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmt.apps.suggest.choices import advice, suggest, with_related_text
from nmt.apps.suggest.corpus import CorpusPaths
from nmt.apps.suggest.neighbors import NEIGHBORS, related_corpora
from nmt.config.recipe import CorpusEntry, Recipe
from tests.apps.suggest.test_choices import facts_of
from tests.toy import lines_of_digits, write_lines

ROOT = Path(__file__).parents[3]


def paths_in(folder: Path, src: str = "gl", tgt: str = "en") -> CorpusPaths:
    corpus = folder / f"{src}-{tgt}"
    return CorpusPaths(src, tgt, *(str(corpus / split) for split in ("train", "dev", "test")))


def write_pairs(folder: Path, langs: tuple[str, str], pairs: int) -> None:
    for lang in langs:
        write_lines(folder / f"train.{lang}", lines_of_digits(pairs))


def entries(paths: CorpusPaths, pairs: int = 100) -> list[CorpusEntry]:
    facts = facts_of(pairs=pairs)
    suggestion = with_related_text(suggest(paths, facts, False), paths, facts)
    return Recipe.model_validate(suggestion.values()).data.train


def test_the_page_lists_each_direction():
    page = (ROOT / "docs/howto/related-languages.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([a-z]{2,3}-[a-z]{2,3})`", page))
    assert {neighbor.direction for neighbor in NEIGHBORS.values()} - {""} <= listed


def test_rules_make_text_of_either_side(tmp_path):
    for src, tgt in (("gl", "en"), ("en", "glg")):
        *_, command = related_corpora(paths_in(tmp_path, src, tgt))[0].commands()
        own = "gl" if src == "gl" else "glg"
        made = tmp_path / f"es-as-{own}" / f"train.{own}"
        assert command == f"apertium -u es-gl < {tmp_path}/es-en/train.es > {made}"


@pytest.mark.parametrize(("src", "tgt"), [("es", "gl"), ("gl", "es"), ("fr", "en")])
def test_a_neighbor_of_the_pair_itself_does_not_help(tmp_path, src, tgt):
    assert not related_corpora(paths_in(tmp_path, src, tgt))


def test_text_as_it_is_serves_the_source_side_only(tmp_path):
    (corpus,) = related_corpora(paths_in(tmp_path, "az", "en"))
    assert corpus.commands() == [
        f"nmt-import tatoeba --src-lang tr --tgt-lang en -o {tmp_path}/tr-en"
    ]
    (corpus,) = related_corpora(paths_in(tmp_path, "en", "az"))
    assert not corpus.commands()
    write_pairs(tmp_path / "tr-en", ("tr", "en"), 10)
    assert corpus.entry() is None
    assert [entry.src for entry in entries(paths_in(tmp_path, "az", "en"))] == [None, "tr"]


def test_the_corpus_is_a_third_of_an_epoch(tmp_path):
    write_pairs(tmp_path / "es-en", ("es", "en"), 50)
    write_pairs(tmp_path / "es-as-gl", ("gl", "en"), 500)
    own, related = entries(paths_in(tmp_path))
    assert (own.weight, related.weight) == (2.5, 1)
    assert (related.path, related.src) == (str(tmp_path / "es-as-gl" / "train"), None)
    assert entries(paths_in(tmp_path), pairs=1000)[0].weight == 1  # never less often than once
    write_pairs(tmp_path / "es-as-gl", ("gl", "en"), 2100)
    assert entries(paths_in(tmp_path), pairs=1)[0].weight == 1000  # no recipe may have more


def test_the_advice_names_the_commands_until_the_text_is_there(tmp_path):
    paths, facts = paths_in(tmp_path), facts_of(pairs=100)
    commands = related_corpora(paths)[0].commands()
    assert set(commands) <= set(advice(paths, facts))
    assert not set(commands) & set(advice(paths, facts_of(words=10**8)))  # enough own text
    write_pairs(tmp_path / "es-as-gl", ("gl", "en"), 10)
    assert not set(commands) & set(advice(paths, facts))
