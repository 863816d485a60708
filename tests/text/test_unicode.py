"""The Unicode form of text: NFC, and characters without a shape where a script does not need them.

Sources: UAX #15 (NFC), UAX #31 section 2.3 (joiners), UTS #51 (emoji), and the core specification.
"""
# ruff: noqa: RUF001

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nmt.text.unicode import changes, normalize, removed

# signs with a shape of their own, although they are of category Cf
SIGNS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
SIGNS |= set(range(0x13430, 0x13440))
SHAPELESS = [
    chr(code)
    for code in range(sys.maxunicode + 1)
    if (unicodedata.category(chr(code)) == "Cf" and code not in SIGNS)
    or 0xFE00 <= code <= 0xFE0F
    or 0xE0100 <= code <= 0xE01EF
    or code in (0x34F, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D)
]
LETTERS = "aé1Жאبدमक्സයාខ្กམ᠊ᠠ日あ각각👩💻🏽⚕❤🏴1#. \u0301\u0653\u094d\u20e3\u0338=ãﻻ\u1100\u1161"
TEXTS = st.text(st.sampled_from([*LETTERS, *SHAPELESS, "\u0640", "\u115f", "\u3164"]), max_size=12)


def clean(text: str) -> str:
    return normalize(text, "clean")


@pytest.mark.parametrize("char", SHAPELESS, ids=lambda char: f"U+{ord(char):04X}")
def test_no_character_without_a_shape_stays_in_latin_text(char: str):
    assert clean(f"Nasta{char}venia").replace(" ", "") == "Nastavenia"
    assert clean(f"{char}Nastavenia {char}").split() == ["Nastavenia"]
    assert removed(f"Nasta{char}venia") == {char}


@pytest.mark.parametrize("code", sorted(SIGNS))
def test_signs_with_a_shape_stay(code: int):
    assert chr(code) in clean(f"{chr(code)}12")


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم کتاب\u200cها",  # Persian: between parts of a word
        "HTML\u200cها",  # after a Latin word
        "ه\u200d.ق.",  # the initial shape of heh at the end of a word
        "क्\u200dष क्\u200cष",  # Hindi: half form, visible virama
        "র\u200d্যাব",  # Bengali: ra before ya
        "സാഫ്റ്റ്\u200cവെയർ അവന്\u200d",  # Malayalam, with a chillu
        "ශ්\u200dරී ක්\u200dය",  # Sinhala
        "ខ្ញុំ\u200bទៅ\u200bសាលា",  # Khmer
        "ภาษา\u200bไทย",  # Thai
        "ᠮᠣᠩᠭᠣᠯ\u180b ᠠ\u180eᠠ",  # Mongolian
        "👩\u200d💻 👩🏽\u200d🚀 🏳\ufe0f\u200d🌈 🙂\u200d↔\ufe0f 🧑\u200d⚕\ufe0f",
        "❤\ufe0f ⚠\ufe0f ‼\ufe0f 1\ufe0f\u20e3 #\ufe0f\u20e3",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "هـ",  # the abbreviation of the Hijri year
        "ـَ",  # a mark needs a letter below it
        "\u1100\u1160",  # a syllable without its vowel
    ],
)
def test_what_a_script_needs_stays(text: str):
    assert clean(text) == text
    assert removed(text) == set()


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\u200bNastavenia\u200b", "Nastavenia"),
        ("\u05d0\u200f, \u200eb", "\u05d0, b"),
        ("كـــتـاب", "كتاب"),
        ("می\u200c\u200cروم\u200c", "می\u200cروم"),
        ("می\u200f\u200cروم", "می\u200cروم"),
        ("ខ្ញុំ\u200b\u200b ទៅ\u200b។", "ខ្ញុំ ទៅ។"),
        ("葛\U000e0100飾", "葛飾"),
        ("日\u200b本", "日本"),
        ("Auf\u200clage", "Auflage"),
        ("a\u200d\u0301", "á"),
        ("\ufff9漢字\ufffaかんじ\ufffb", " 漢字 かんじ "),
        ("\u212b", "\u00c5"),
    ],
)
def test_what_nobody_sees_goes(text: str, cleaned: str):
    assert clean(text) == cleaned


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(TEXTS)
@example("a\u200d\u0301\u200cب")
def test_equivalent_texts_become_equal_and_stay_so(text: str):
    once = clean(text)
    assert clean(once) == once
    for form in ("NFC", "NFD"):
        assert clean(unicodedata.normalize(form, text)) == once
    assert unicodedata.is_normalized("NFC", once)
    assert normalize(unicodedata.normalize("NFD", text), "nfc") == normalize(text, "nfc")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(0, sys.maxunicode + 1, 0x1000))
def test_canonically_equivalent_characters_become_equal(block: int):
    for code in range(block, block + 0x1000):
        char = chr(code)
        if unicodedata.decomposition(char) or unicodedata.category(char) == "Lo":
            decomposed = unicodedata.normalize("NFD", char)
            assert clean(decomposed) == clean(char) == clean(clean(char))


def test_other_forms():
    text = "e\u0301\u200b"
    assert normalize(text, "none") == text
    assert normalize(text, "nfc") == "é\u200b"


@pytest.mark.slow
def test_visible_text_is_the_same():
    """Nothing but characters without a shape, and the tatweel, may change."""
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        is_removed = bool(removed(f"a{char}a")) or bool(removed(f"ب{char}ب"))
        if is_removed:
            assert char in SHAPELESS or char in "\u0640\u115f\u1160\u3164\uffa0\u180f", hex(code)


def test_changes_are_described():
    assert changes("e\u0301") == ["not in Unicode NFC"]
    assert changes("a\u200bb\u00adc") == ["U+00AD SOFT HYPHEN", "U+200B ZERO WIDTH SPACE"]
    assert changes("é") == changes("a") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["\u200b", "\u0301\u200d", "\u0301\u0316", "ـ", "a\ufe0f", "\U000e0067", "ب\u200d"]
)
def test_long_lines_take_linear_time(part: str):
    assert clean(clean(part * 50_000)) == clean(part * 50_000)
