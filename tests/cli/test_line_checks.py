"""Notes about lines and their translations."""

# ruff: noqa: RUF001

from __future__ import annotations

from typing import Any

import pytest

from nmt.cli.line_checks import LineChecks
from nmt.decoding.codec import BLANK, Translation
from nmt.decoding.options import SearchOptions
from tests.cli.imitation import Capitals


def notes_of(pairs: list[tuple[str, str]], finished: int = 0) -> str:
    checks = LineChecks(Capitals(), SearchOptions())  # type: ignore[arg-type]
    sources = list(checks.sources([source for source, _ in pairs], finished))
    assert sources == [source for source, _ in pairs]
    results = [Translation([], text, -1.0, -1.0, True) if text else BLANK for _, text in pairs]
    assert len(list(checks.see([text] for text in results[finished:]))) == len(pairs) - finished
    return "\n".join(checks.notes())


def test_numbers_that_change_are_counted_with_their_places() -> None:
    pairs = [("a 3–5", "b 35"), ("", ""), ("a 1.000", "b 1,000"), ("a -5", "b 5")]
    note = notes_of(pairs)
    assert "2 of 3 translations" in note
    assert "line 1 (3–5), line 4 (-5)" in note
    assert "line 4 (-5)" in notes_of(pairs, finished=2)
    assert "1 of 2 translations" in notes_of(pairs, finished=2)
    assert "and 4 more" in notes_of([("a 1", "b")] * 9)


def test_translations_that_equal_their_sources_are_counted() -> None:
    assert "2 translations equal" in notes_of([("a b", "a b"), ("5", "5"), ("c", "c"), ("d", "e")])
    assert not notes_of([("a", "b"), ("5", "5"), ("", "")])


@pytest.mark.parametrize("tag", ["<2en>", ">>ces<<", "__eng_Latn__", "__en__", "<en>", "eng_Latn"])
def test_a_tag_in_every_line_is_read_as_text(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [(f"{tag} one", "eins"), ("", ""), (f"{tag} two", "zwei")]
    assert "--tag (<de>)" in notes_of(lines)
    assert not notes_of([*lines, ("three", "drei")])
    codec: Any = Capitals.codec
    monkeypatch.setattr(codec.vocab, "tags", [])
    assert "no tags" in notes_of(lines)


@pytest.mark.parametrize("text", ["<em>one</em> two", "<b>x</b>", "[1] one", "<3 you", "one_Two"])
def test_markup_is_no_tag(text: str) -> None:
    assert not notes_of([(text, "x y z 1 3")])
