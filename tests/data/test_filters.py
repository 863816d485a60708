"""Measures of a pair, in closed form; the two passes are tested where they are used."""

from __future__ import annotations

import pytest

from nmt.data.filters import (
    LanguageOdds,
    copied_share,
    foreign_share,
    is_misread,
    marks_share,
)
from nmt.data.lines import length_ratio
from nmt.text.languages import LanguageProfile
from nmt.text.letters import repetitions


@pytest.mark.parametrize(
    ("src", "tgt", "share"),
    [
        ("a b c d", "a b x y", 1 / 2),
        ("a b", "a x b b", 1 / 2),  # the source has one b
        ("a b Maria", "x b Maria", 1 / 2),  # names are the same in all languages
        ("A B", "X B", 1 / 2),  # in capitals, a word is no name
        ("a", "x y", 0),
        ("1984", "1984", 1),  # the same text
        ("x 1984", "y 1984", 0),  # nor are numbers translated
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
    ("text", "times"),
    [
        ("ha ha ha ha", 1),
        ("ha " * 16, 16),
        ("read more " * 4, 4),
        ("tick tock " * 3, 1),
        ("哈哈哈哈", 1),
        ("点击这里" * 4, 4),
        ("ドキドキドキドキ", 1),
    ],
)
def test_repetitions_of_few_letters_do_not_count(text: str, times: int) -> None:
    assert repetitions(text, 32) == times


@pytest.mark.parametrize("text", ["café", "naïve «été»", "„Spaß“", "Spaß»", "Ünï", "Łódź", "日本"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_text_in_a_wrong_encoding_is_recognized(text: str, encoding: str) -> None:
    assert not is_misread(text)
    misread = text.encode().decode(encoding, "replace")
    assert is_misread(misread) or "\ufffd" in misread
    assert not is_misread(text.encode("cp1252", "ignore").decode("cp1252"))


def test_shares_of_marks_and_of_another_script() -> None:
    assert marks_share("ab, c! (d) - = =") == 7 / 11
    assert marks_share("—¿No? —¡No!") == 0  # six are few
    assert marks_share("\u0915\u093f" * 7) == 0  # a vowel sign is no mark
    assert marks_share("\U0001f602" * 7) == 0
    assert marks_share("... " * 7) == 1
    assert foreign_share("a \u0434", "en") == 0.5
    assert foreign_share("a \u0434", "sr") == 0  # which has two scripts
    assert foreign_share("12", "ru") == 0
    assert foreign_share("Bluetooth デバイス", "ja") == 1 / 5  # a letter of Japanese is a word
    assert foreign_share("open the app करें", "hi", "Open the app") == 0
    assert foreign_share("कृपया DVD और CD", "hi", "disks, please") == 0
    assert foreign_share("open it करें", "hi", "Open the app") == 1 / 3


def test_log_odds_of_a_language() -> None:
    one, other = LanguageProfile(), LanguageProfile()
    one.add("aa")  # " a", "aa", "a "
    other.add("ab")  # " a", "ab", "b "
    odds = LanguageOdds(one, other)
    assert odds.log_odds("a") == pytest.approx(1.0986123)  # " a": ln 1; "a ": ln (1.5 / 0.5)
    assert odds.log_odds("aa") == pytest.approx(2 * 1.0986123)
    assert odds.log_odds("zz") == 0.0
    assert LanguageOdds(other, one).log_odds("aa") == pytest.approx(-2 * 1.0986123)
