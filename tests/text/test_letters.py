"""Capital and small letters by language, and the forms in which texts are compared."""

# ruff: noqa: RUF001

from __future__ import annotations

import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nmt.decoding.glossary import Glossary, split_words
from nmt.text.letters import capitalized, compared, fold, fold_capitals, lower, upper

LETTERS = [
    char
    for char in map(chr, range(sys.maxunicode + 1))
    if char.isalpha() and (char.lower() != char or char.upper() != char)
]
LANGS = ["", "tr", "lt", "el", "ga", "hyw", "uk"]


@pytest.mark.parametrize(
    ("lang", "small", "capitals"),
    [
        ("tr", "izin ışık millî", "İZİN IŞIK MİLLÎ"),
        ("azj_Latn", "iş", "İŞ"),
        ("kk_Latn", "iri", "İRİ"),
        ("kk", "кітап it", "КІТАП IT"),
        ("el", "άδεια, ή όχι", "ΑΔΕΙΑ, Ή ΟΧΙ"),
        ("el", "μάιος γάιδαρος προϋπόθεση", "ΜΑΪΟΣ ΓΑΪΔΑΡΟΣ ΠΡΟΫΠΟΘΕΣΗ"),
        ("el", "τοΐχος ᾠδή", "ΤΟΪΧΟΣ ΩΙΔΗ"),
        ("hy", "և տևել", "ԵՎ ՏԵՎԵԼ"),
        ("hyw", "և", "ԵՒ"),
        ("ga", "an tAthair i nGaeilge, bhFuil hÉire", "AN tATHAIR I nGAEILGE, bhFUIL hÉIRE"),
        ("lt", "i\u0307\u0301", "I\u0301"),
        ("ka", "გამარჯობა abc", "გამარჯობა ABC"),
        ("de", "straße", "STRASSE"),
        ("fr", "ﬁn d’été", "FIN D’ÉTÉ"),
    ],
)
def test_capitals_of_a_language(lang: str, small: str, capitals: str):
    composed = unicodedata.normalize("NFC", upper(small, lang))
    assert composed == unicodedata.normalize("NFC", capitals)


@pytest.mark.parametrize(
    ("lang", "word", "with_capital"),
    [
        ("tr", "izin", "İzin"),
        ("nl", "ijs", "IJs"),
        ("en", "ijs", "Ijs"),
        ("hy", "և", "Եվ"),
        ("hyw", "և", "Եւ"),
        ("ga", "tAthair", "tAthair"),
        ("el", "άδεια", "Άδεια"),
        ("hr", "ǆep", "ǅep"),
        ("ka", "კი", "კი"),
        ("en", "", ""),
    ],
)
def test_a_capital_initial_of_a_language(lang: str, word: str, with_capital: str):
    assert capitalized(word, lang) == with_capital


def test_small_letters_of_a_language():
    assert lower("İZİN IŞIK", "tr") == "izin ışık"
    assert lower("İZİN IŞIK", "en") == "izin işik"
    assert lower("tAthair", "ga") == "t-athair"
    assert lower("ΟΔΟΣ", "el") == "οδος"


@pytest.mark.slow
@pytest.mark.parametrize("lang", LANGS)
def test_every_letter_is_found_in_any_case(lang: str):
    """Of all scripts that have cases, inside a word and alone."""
    words = {
        small: upper(small, lang)
        for letter in LETTERS
        if (small := lower(f"{letter}{letter}x", lang)) and not any(map(str.isupper, small))
    }
    for small, capitals in words.items():
        assert fold_capitals(capitals, lang) == fold_capitals(small, lang)
        assert fold(fold(small, lang), lang) == fold(small, lang)
    glossary = Glossary([(small, "x") for small in words], (lang, "en"))
    for written in (words.values(), [capitalized(small, lang) for small in words]):
        terms = glossary.find(" ".join(written))
        found = {fold_capitals(compared(term).text, lang) for term in terms}
        keys = {small: fold_capitals(compared(small).text, lang) for small in words}
        missing = {small for small, key in keys.items() if key not in found}
        assert not missing - {"ĳĳx"}  # which has no Turkish capitals


@pytest.mark.parametrize(
    ("lang", "one", "other"),
    [
        ("tr", "izin", "İZİN"),
        ("tr", "millî", "MİLLÎ"),
        ("en", "izin", "İzin"),
        ("de", "straße", "STRASSE"),
        ("de", "STRAẞE", "strasse"),
        ("el", "λόγος", "Λόγοσ"),
        ("hy", "և", "Եւ"),
        ("hy", "արևելք", "ԱՐԵՎԵԼՔ"),
        ("chr", "ꭰꮳ", "ᎠᏣ"),
        ("ka", "მთა", "ᲛᲗᲐ"),
        ("fr", "ﬁn", "FIN"),
        ("af", "ŉ", "'N"),
        ("uk", "п’ять", "П'ЯТЬ"),
        ("uz", "oʻzbek", "O‘ZBEK"),
        ("haw", "ʻāina", "'ĀINA"),
        ("he", "צה״ל", 'צה"ל'),
        ("he", "שָׁלוֹם", "שלום"),
        ("ar", "كِتَابٌ", "كـتـاب"),
        ("ar", "ﻛﺘﺎﺏ", "كتاب"),
        ("ja", "ｶﾞ", "ガ"),
        ("en", "ｅ‑Ｍａｉｌ", "e-mail"),
        ("en", "co\u00adop", "COOP"),
    ],
)
def test_the_same_word_in_other_signs(lang: str, one: str, other: str):
    words = [[w.folded for w in split_words(text, lang)] for text in (one, other)]
    assert words[0] == words[1]
    decomposed = unicodedata.normalize("NFD", one)
    assert [w.folded for w in split_words(decomposed, lang)] == words[0]


@pytest.mark.parametrize(
    ("lang", "one", "other"),
    [
        ("tr", "ısı", "isi"),
        ("el", "πότε", "ποτέ"),
        ("el", "ή", "η"),
        ("sk", "sud", "súd"),
        ("ru", "и", "й"),
        ("hi", "कल", "काल"),
        ("ja", "か", "が"),
    ],
)
def test_other_words_stay_apart(lang: str, one: str, other: str):
    assert fold(one, lang) != fold(other, lang)
    assert not Glossary([(one, "x")], (lang, "en")).find(f"- {other} -")


SIGNS = "aİıßéΆΐςﬁŉև'’ʼｶﾞＡ\u0301\u0308\u200d\u00ad\u0640\u064b각ᄀ\u1161👩🏽 .ะำ"


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from(SIGNS), max_size=20) | st.text(max_size=20), st.sampled_from(LANGS))
@example("ﬁﬁ", "en")
@example("a\u0640b", "ar")
def test_each_place_is_that_of_the_character_in_the_original(text: str, lang: str):
    form, places = compared(text, lang)
    assert len(places) == len(form) + 1
    assert places[-1] == len(text)
    assert all(0 <= one <= other for one, other in pairwise(places))
    for cut in {*places[:-1]}:  # what begins there is compared in the same form
        rest = "".join(char for char, place in zip(form, places, strict=False) if place >= cut)
        assert compared(text[cut:]).text.replace("ʼ", "'") == rest.replace("ʼ", "'")
    assert compared(form, lang).text == form


@pytest.mark.parametrize(
    "part",
    ["\u0301\u0316", "αά", "'", "e'", "ά", "İ", "a\u200d", "ﬁ", "각", "\u0640", "a\u0308\u0301"],
)
def test_long_texts_take_linear_time(part: str):
    """Quadratic time would be minutes."""
    text = part * 20_000
    assert compared(text, "uk").places[-1] == len(text)
    assert fold(upper(text, "tr"), "tr")
