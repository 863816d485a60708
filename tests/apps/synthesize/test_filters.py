"""Filters of synthetic pairs: each function in closed form, and all of them on a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from nmt.apps.synthesize.filters import (
    CUT,
    Thresholds,
    reasons_to_skip,
    target_rules,
)
from nmt.data.filters import CorpusFilter
from nmt.data.pair import Pair
from nmt.data.rules import LIMITS, Reason
from nmt.text.languages import script_of, script_share


@pytest.mark.parametrize(
    ("line", "lang", "reason"),
    [
        ("a b", "en", None),
        ("a \udcff b", "en", "source not UTF-8"),
        ("\u200b \t", "en", "source blank"),
        ("x " * (LIMITS.words + 1), "en", "source length"),
        ("x" * (LIMITS.characters + 1), "en", "source characters"),
        ("привет мир ab", "en", "source script"),
        ("приве abcde", "en", None),  # half of the letters
        ("hello", "ru", "source script"),
        ("2008 - 2009", "ru", None),
        ("привет", "sr", None),  # Serbian has two scripts
    ],
)
def test_lines_that_are_not_translated(line: str, lang: str, reason: Reason) -> None:
    assert reasons_to_skip([line], lang) == [reason]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (Pair("a b", "x y"), None),
        (Pair("a b", "\u200b"), "target blank"),
        (Pair("a b", "x y " * LIMITS.words), "target length"),
        (Pair("a b", "a b"), "partly-copied"),
        (Pair("a b", "a b x y"), None),
        (Pair("a b", "a b x"), "partly-copied"),
        (Pair("a b", "x x x x"), "repetition"),
        (Pair("a b", "x x x"), None),
        (Pair("a a a a", "x x x x"), None),  # the source has it too
        (Pair("a b", "привет"), "target script"),
    ],
)
def test_translations_that_are_dropped(pair: Pair, reason: Reason) -> None:
    checked, _ = filtered([pair])
    assert checked.reasons == [reason]


def test_the_first_of_equal_lines_is_translated() -> None:
    lines = ["b", "a", "", "b", "a", "", "b"]
    assert reasons_to_skip(lines, "en") == [
        None, None, "source blank", "source duplicate", "source duplicate", "source blank",
        "source duplicate",
    ]  # fmt: skip
    assert reasons_to_skip([], "en") == []


def test_share_of_a_script() -> None:
    assert script_share("a д", "LATIN") == 0.5
    assert script_share("ab 1", "LATIN") == 1.0
    assert script_share("ab", "CYRILLIC") == 0.0
    assert script_share("1 - 2", "CYRILLIC") == 1.0
    assert script_share("ひカ漢", script_of("ja") or "") == 1.0
    assert script_share("コーヒー", script_of("ja") or "") == 1.0
    assert script_of("pt-BR") == "LATIN"
    assert script_of("sr") is None
    assert script_of("srp_Cyrl") == "CYRILLIC"
    assert script_of("arb") == script_of("ar-EG") == "ARABIC"
    assert script_of("arb_Latn") == "LATIN"
    assert script_of("chr_Cher") is None


def words(letters: str, seed: int, count: int) -> str:
    rng = Random(seed)
    return " ".join("".join(rng.choices(letters, k=4)) for _ in range(count))


def filtered(
    pairs: list[Pair], skipped: list[Reason] | None = None, **thresholds: float
) -> tuple[CorpusFilter, list[Pair]]:
    calls: Callable[[], Iterator[Pair]] = lambda: iter(pairs)  # noqa: E731
    rules = target_rules("gl", Thresholds(**thresholds))
    checked = CorpusFilter(calls, rules, ("en", "gl"), "bt", skipped or [])
    return checked, list(checked.kept())


def test_lines_in_the_language_of_the_source_are_dropped() -> None:
    """Also if no word is copied; the corpus itself says what the two languages look like."""
    pairs = [Pair(words("abcde", i, 9), words("efghi", -i, 9)) for i in range(1, 99)]
    checked, kept = filtered([*pairs, Pair(words("abcde", 0, 9), words("abcde", 200, 9))])
    assert kept == pairs
    assert checked.counts() == {"swapped": 1}
    few, kept = filtered([*pairs[:3], Pair("abcd", "bcda bcda bcda")])
    assert len(kept) == 4  # too little text to know the languages
    assert few.counts() == {}


def test_the_typical_ratio_is_the_median() -> None:
    pairs = [Pair(f"a{i}" + "c" * 50, "x" * 26) for i in range(10, 19)]
    checked, kept = filtered([*pairs, Pair("b" * 53, "x" * 63), Pair("c" * 53, "x" * 62)])
    assert checked.typical_ratio == pytest.approx(26 / 53)
    assert kept == [*pairs, Pair("c" * 53, "x" * 62)]  # at most 2 x 26 + 10
    assert checked.counts() == {"ratio": 1}
    assert len(filtered([*pairs, Pair("b" * 53, "x" * 63)], max_ratio=3.0)[1]) == 10


def test_a_model_that_says_nothing_is_reported() -> None:
    checked, _ = filtered([Pair(f"a{i}" + "b" * 40, "x") for i in range(10, 19)])
    [warning] = checked.warnings
    assert warning.startswith("bt: a typical translation has 0.02 characters for each character")


def test_counts_add_up() -> None:
    rng = Random(3)
    pairs = [
        Pair(
            " ".join(rng.choices("abcdefgh", k=rng.randint(1, 9))),
            " ".join(rng.choices("abxy", k=rng.randint(0, 40))),
        )
        for _ in range(500)
    ]
    skipped = [
        reason or (CUT if rng.random() < 0.1 else None)
        for reason in reasons_to_skip((pair.src for pair in pairs), "en")
    ]
    checked, kept = filtered(pairs, skipped)
    dropped = checked.counts()
    assert len(kept) + sum(dropped.values()) == 500
    assert len(kept) == checked.reasons.count(None)
    assert dropped.keys() == {
        "source duplicate", "target blank", CUT, "ratio", "partly-copied", "repetition"
    }  # fmt: skip
    assert list(dropped.values()) == sorted(dropped.values(), reverse=True)
