"""Measures of a pair, in closed form; the two passes are tested where they are used."""

from __future__ import annotations

import pytest

from nmt.data.filters import (
    LanguageOdds,
    copied_share,
    different_digits,
    foreign_share,
    length_ratio,
    marks_share,
    repetitions,
)
from nmt.data.languages import LanguageProfile


@pytest.mark.parametrize(
    ("src", "tgt", "share"),
    [
        ("a b c d", "a b x y", 1 / 2),
        ("a b", "A x b b", 1 / 2),  # the source has one b
        ("a", "x y", 0),
        ("1984", "1984", 1),  # the same text
        ("x 1984", "y 1984", 0),  # numbers are the same in all languages
        ("a &apos;", "x &apos;", 0),  # nor are escapes words
        ("see {name}", "vexa {name}", 0),
        ("", "...", 0),
        ("東京 x", "京 y", 1 / 2),
    ],
)
def test_share_of_copied_words(src: str, tgt: str, share: float) -> None:
    assert copied_share(src, tgt) == share


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("", 1),
        ("a b c", 1),
        ("no, no", 2),
        ("a b a b a b", 3),
        ("x a b a b a b a", 3),
        ("a b c a b", 1),
        ("Ha ha ha! ha", 4),
        (" ".join("abcdefghijklmnop") + " " + " ".join("abcdefghijklmnop"), 2),
        (" ".join("abcdefghijklmnopq") + " " + " ".join("abcdefghijklmnopq"), 1),  # 17 words
        ("哈哈哈哈", 4),
        ("!!!!!!", 1),
        ("0 0 0 0", 4),
    ],
)
def test_repetitions(text: str, times: int) -> None:
    assert repetitions(text) == times


@pytest.mark.parametrize(
    ("src", "tgt", "typical", "differ"),
    [
        (20, 50, 1.0, False),
        (20, 51, 1.0, True),
        (50, 20, 1.0, False),
        (51, 20, 1.0, True),
        (1, 12, 1.0, False),  # ten characters more than twice the length
        (10, 30, 0.5, True),  # 5 are expected
        (40, 20, 0.5, False),
        (102, 20, 0.5, True),
    ],
)
def test_lengths_are_compared_with_the_typical_ratio(
    src: int, tgt: int, typical: float, differ: bool
) -> None:
    assert (length_ratio("x" * src, "y" * tgt, typical) > 2.0) == differ


@pytest.mark.parametrize(
    ("src", "tgt", "share"),
    [
        ("in 1999", "in 1999", 0),
        ("1,000,000 people", "1 million people", 0),  # zeros do not count
        ("page 12", "page twelve", 0),  # up to two digits may be a word
        ("3 of 12", "three of twelve", 1),
        ("in 1998", "in 2001", 4 / 6),  # 9, 9, 8 and 2; the ones are the same
        ("in 1998 and 2345", "in 1998", 4 / 12),
        ("\u0661\u0669\u0669\u0668", "1998", 0),  # Arabic digits
        ("page 12345", "page", 1),
    ],
)
def test_digits_that_the_other_side_lacks(src: str, tgt: str, share: float) -> None:
    assert different_digits(src, tgt) == pytest.approx(share)
    assert different_digits(tgt, src) == pytest.approx(share)


def test_shares_of_marks_and_of_another_script() -> None:
    assert marks_share("ab, c!") == 2 / 5
    assert marks_share("=== $$") == 1
    assert marks_share(" ") == 0
    assert marks_share("\u0915\u093f") == 0  # a vowel sign is no mark
    assert foreign_share("a \u0434", "en") == 0.5
    assert foreign_share("a \u0434", "sr") == 0  # which has two scripts
    assert foreign_share("12", "ru") == 0


def test_log_odds_of_a_language() -> None:
    one, other = LanguageProfile(), LanguageProfile()
    one.add("aa")  # " a", "aa", "a "
    other.add("ab")  # " a", "ab", "b "
    odds = LanguageOdds(one, other)
    assert odds.log_odds("a") == pytest.approx(1.0986123)  # " a": ln 1; "a ": ln (1.5 / 0.5)
    assert odds.log_odds("aa") == pytest.approx(2 * 1.0986123)
    assert odds.log_odds("zz") == 0.0
    assert LanguageOdds(other, one).log_odds("aa") == pytest.approx(-2 * 1.0986123)
