"""Monolingual text next to a corpus is copied to both sides; characters that train lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.apps.suggest.choices import advice, suggest
from nmt.apps.suggest.corpus import find_corpus
from nmt.apps.suggest.facts import collect_facts
from nmt.apps.suggest.monolingual import with_copied_text
from nmt.cli.suggest import main
from nmt.config.recipe import Recipe
from nmt.errors import UserError
from tests.apps.suggest.test_choices import facts_of
from tests.toy import write_lines


def copied(corpus: str, pairs: int) -> list[tuple[str, float]]:
    """Return the path and the weight of the entries of copied text in the recipe of a corpus."""
    paths, facts = find_corpus(corpus, None, None), facts_of(pairs=pairs)
    suggestion = with_copied_text(suggest(paths, facts, False), paths, facts)
    recipe = Recipe.model_validate(suggestion.values())
    assert recipe.data.train[0].path == corpus
    return [(entry.path, entry.weight) for entry in recipe.data.train if entry.copied]


@pytest.mark.parametrize(("lines", "weight"), [(10, 1.0), (40, 0.5), (4000, 0.01)])
def test_an_epoch_has_at_most_half_as_many_copies_as_pairs(corpus, lines, weight):
    assert not copied(corpus, pairs=40)
    write_lines(Path("corpus/mono.en"), [f"line {number} ." for number in range(lines)])
    assert copied(corpus, pairs=40) == [("corpus/mono", weight)]


def test_an_empty_text_and_one_of_the_source_language_are_not_copied(corpus):
    write_lines(Path("corpus/mono.en"), ["", " "])
    write_lines(Path("corpus/mono.gl"), ["line"])
    assert not copied(corpus, pairs=40)


def test_text_elsewhere_is_named(corpus, capsys):
    write_lines(Path("news.en"), ["line"])
    assert find_corpus(corpus, None, None, "news").mono == "news"
    with pytest.raises(UserError, match="gone"):
        find_corpus(corpus, None, None, "gone")
    assert main([corpus, "--mono", "news", "--parent", "runs/x"]) == 2
    assert "--mono is for one corpus" in capsys.readouterr().err


def test_the_characters_that_train_lacks_are_named(corpus):
    facts = collect_facts(find_corpus(corpus, None, None), progress=False)
    assert not facts.lacking
    for lang in ("gl", "en"):
        write_lines(Path(f"corpus/test.{lang}"), ["1 2", "1 2 é"])
    facts = collect_facts(find_corpus(corpus, None, None), progress=False)
    (source, target) = facts.lacking
    assert (source.split, source.lang, source.characters) == ("test", "gl", "é")
    assert (target.lang, target.share) == ("en", pytest.approx(1 / 8))
    (advised,) = (line for line in advice(find_corpus(corpus, None, None), facts) if "(gl)" in line)
    assert "12.5% of the characters of test (gl) are not in train (gl)" in advised
    assert "mono.en" in advised
    write_lines(Path("corpus/mono.en"), ["é"])
    assert not collect_facts(find_corpus(corpus, None, None), progress=False).lacking
