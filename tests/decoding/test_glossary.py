"""Terms in lines, and translations that must have them."""
# ruff: noqa: RUF001

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.recipe import SentencePieceConfig, WhitespaceConfig
from nmt.decoding.constraints import LineConstraints
from nmt.decoding.glossary import Glossary, split_words
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.text.sentences import UsualLine
from nmt.text.tokenizer import Moses
from tests.decoding.untrained import LINES, untrained


def has_form(line: str, forms: Iterable[str], lang: str = "") -> bool:
    """Return whether a translation has one of some forms, as complete words."""
    words = [word.text for word in split_words(line, lang)]
    for form in forms:
        phrase = [word.text for word in split_words(form, lang)]
        size = len(phrase)
        if any(words[start : start + size] == phrase for start in range(len(words) - size + 1)):
            return True
    return False


FIND = [
    # terms, line, what is found
    ("kôň", "kôň beží", "kôň"),
    ("kôň", "Kôň a KÔŇ", "kôň"),
    ("Word", "word", ""),
    ("Word", "Word", "Word"),
    ("Word", "WORD", "Word"),
    ("Straße|iPhone", "STRASSE, IPHONE, iphone, strasse", "Straße|iPhone"),
    ("us|US", "US us", "US|us"),
    ("kôň", "koník kôňa", ""),
    ("kôň*", "koník kôňa", "kôň*"),
    ("nov* súbor*", "Otvoriť nové súbory?", "nov* súbor*"),
    ("súbor*|súbory", "súbory", "súbory"),
    ("súb*|súbor*", "súbory", "súbor*"),
    ("a b|b c d", "a b c d", "b c d"),
    ("a b|a|b c d", "a b c d", "b c d|a"),
    ("e-mail|mail", "Váš e-mail.", "e-mail"),
    ("C++|C", "v C++, v C", "C++|C"),
    ("%s", "súbor %s: 5 %", "%s"),
    ("don't", "I don't", "don't"),
    ("dve  slová", "dve\u00a0slová", "dve  slová"),
    (unicodedata.normalize("NFD", "kôň"), "kôň", unicodedata.normalize("NFD", "kôň")),
    ("सेटिंग", "सेटिंग्स", ""),  # a vowel sign does not end a word
    ("सेटिंग*", "सेटिंग्स", "सेटिंग*"),
    ("设置|文件", "打开设置和文件。", "设置|文件"),
    ("การตั้งค่า", "เปิดการตั้งค่า", "การตั้งค่า"),
]


@pytest.mark.parametrize(("terms", "line", "expected"), FIND)
def test_terms_in_a_line(terms, line, expected):
    glossary = Glossary([(term, "x") for term in terms.split("|")])
    assert sorted(glossary.find(line)) == sorted(filter(None, expected.split("|")))


def test_terms_that_a_line_has_in_a_million_ways_are_an_error():
    stems = ["a*", "aa*", "aaa*", "aaaa*"]
    glossary = Glossary([(" ".join(words), "x") for words in itertools.product(stems, repeat=5)])
    assert list(glossary.find("aaaa b aaa")) == []
    assert list(glossary.find("aaaaa " * 5)) == [" ".join(stems[3:] * 5)]
    with pytest.raises(UserError, match="ways"):
        glossary.find("aaaaa " * 100)


@pytest.mark.parametrize(
    ("lang", "term", "line", "found"),
    [
        ("tr", "ışık", "IŞIK", True),
        ("tr", "isi", "ISI", False),
        ("de", "straß*", "Haupt-STRASSEN 5", True),
        ("el", "άδεια παραμονής", "Η ΑΔΕΙΑ ΠΑΡΑΜΟΝΗΣ", True),
        ("el", "άδει* διαμονής", "ΑΔΕΙΕΣ διαμονής", True),
        ("el", "άδεια", "αδεια", False),  # another word in small letters
        ("el", "ή", "Η ΠΟΛΗ", False),  # the article, not "or"
        ("uk", "пʼять", "П'ЯТЬ", True),
        ("uk", "ять", "п'ять", False),
        ("fr", "eau", "l’eau", True),
        ("br", "c'hoar", "C’HOAR", True),
        ("hy", "և", "Ա ԵՎ Բ", True),
        ("ar", "كتاب", "كِتَابٌ", True),
        ("ja", "ガス", "ｶﾞｽ代", True),
    ],
)
def test_letters_of_a_language(lang, term, line, found):
    """Which signs are the same is tested in tests/text/test_letters.py."""
    for form in ("NFC", "NFD"):
        glossary = Glossary([(unicodedata.normalize(form, term), "x")], (lang, "en"))
        assert bool(glossary.find(line)) is found
        assert bool(glossary.find(unicodedata.normalize("NFD", line))) is found


def test_words_that_are_the_same_in_capitals_stay_apart():
    terms = [("νόμος", "law"), ("νομός", "prefecture")]
    glossary = Glossary(terms, ("el", "en"))
    assert glossary.find("ο νομός") == {"νομός": ("prefecture", "Prefecture")}
    assert glossary.find("Ο ΝΟΜΟΣ") == {"νόμος": ("law", "Law", "LAW")}


def test_forms_of_a_term_are_written_as_in_the_target_language():
    glossary = Glossary([("permission", "izin"), ("ice", "ijs")], ("en", "tr"))
    assert glossary.find("PERMISSION")["permission"] == ("izin", "İzin", "İZİN")
    glossary = Glossary([("permission", "άδεια"), ("ice", "ijs")], ("en", "nl"))
    assert glossary.find("ICE, PERMISSION") == {
        "ice": ("ijs", "IJs", "IJS"),
        "permission": ("άδεια", "Άδεια", "ΑΔΕΙΑ"),
    }
    assert has_form("les don’ts", ["don'ts"], "en")


@pytest.mark.slow
def test_a_hostile_line_takes_linear_time():
    glossary = Glossary([("izin*", "x"), ("a b", "y")], ("tr", "en"))
    for part in ("İ", "a ", "\u0301\u0316", "'", "ﷺ"):
        assert isinstance(glossary.find(part * 30_000), dict)


@pytest.mark.parametrize(
    ("targets", "line", "forms"),
    [
        (["settings"], "o nastavenia ide", ("settings", "Settings")),
        (["settings"], "NASTAVENIA", ("settings", "Settings", "SETTINGS")),
        (["settings"], "nastavenia a NASTAVENIA", ("settings", "Settings", "SETTINGS")),
        (["setting", "the settings"], "Nastavenia",
         ("setting", "the settings", "Setting", "The settings")),
        (["iPhone"], "nastavenia", ("iPhone",)),
        (["設定"], "Nastavenia", ("設定",)),
    ],
)  # fmt: skip
def test_forms_of_a_term(targets, line, forms):
    assert Glossary([("nastavenia", t) for t in targets]).find(line) == {"nastavenia": forms}


def test_terms_of_tokenized_lines_are_tokenized():
    terms = [("l'aigua*", "don't"), ("e-mail", "e-mail"), ("R&D", "R&D")]
    glossary = Glossary(terms, ("ca", "en"), tokenized=True)
    line = "L&apos; aigües l&apos; aiguaR ; e-mail , R &amp; D"
    found = glossary.find(line.replace("aiguaR", "aiguardent"))
    assert found["l'aigua*"] == ("don &apos;t", "Don &apos;t")
    assert found["R&D"] == ("R &amp; D",)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("text", "form", "has"),
    [
        ("Open the settings.", "settings", True),
        ("Open the settings.", "Settings", False),
        ("presettings", "settings", False),
        ("打开设置", "设置", True),
        ("the new file", "new file", True),
        ("the new, file", "new file", False),
    ],
)
def test_a_form_is_complete_words(text, form, has):
    assert has_form(text, ["other", form]) is has


# ---------------------------------------------------------------- translations

TERMS = [
    ("can", "hound"), ("gat*", "tomcat"), ("pan", "loaf"), ("non", "no, sir"),
    ("cidade vella", "Ω"), ("vella", "old"), ("mar", "sea"), ("mar", "ocean"),
]  # fmt: skip


@pytest.fixture(scope="module")
def by_sentencepiece() -> Translator:
    return untrained(segment=SentencePieceConfig(vocab_size=60))


def kept(lines: list[str], texts: list[str], terms: list[tuple[str, str]]) -> list[bool]:
    glossary = Glossary(terms)
    return [
        has_form(text, forms)
        for line, text in zip(lines, texts, strict=True)
        for forms in glossary.find(line).values()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fastbpe", "sentencepiece", "whitespace"])
@pytest.mark.parametrize("beam", [1, 4])
def test_translations_have_the_terms_of_their_lines(kind, beam, by_sentencepiece):
    translator = by_sentencepiece
    if kind != "sentencepiece":
        translator = untrained(segment=WhitespaceConfig() if kind == "whitespace" else None)
    lines = [*LINES, "", "A gata e o can", "cidade vella, Mar"]
    free = translator.translate(lines, beam=beam)
    found = translator.translate(lines, beam=beam, glossary=TERMS)
    assert not all(kept(lines, free, TERMS))
    assert len(kept(lines, found, TERMS)) > 10
    assert all(kept(lines, found, TERMS)), list(zip(lines, found, strict=True))
    for line, before, after in zip(lines, free, found, strict=True):
        if all(kept([line], [before], TERMS)):  # also without a term
            assert after == before, line
    alone = [translator.translate([line], beam=beam, glossary=TERMS)[0] for line in lines]
    assert alone == found


def test_a_term_may_stand_before_a_sign(by_sentencepiece):
    """SentencePiece has no space between a word and a comma."""
    (text,) = by_sentencepiece.translate(["mar."], glossary=[("mar", "sea.")], beam=4)
    assert "sea." in text
    codec = by_sentencepiece.codec
    glossary = codec.glossary([("mar", "sea")])
    (part,) = codec.encode_line(1, "mar.", LineConstraints(), SearchOptions(), glossary=glossary)
    for text, has in (("the sea,", 1), ("the sea, sir", 1), ("the seas", 0), ("these a", 0)):
        pieces = codec.target_pieces(text)
        (forms,) = part.require
        assert any(codec.strings.contains(pieces, form.pieces) for form in forms) is bool(has)


def test_each_sentence_of_a_line_has_its_own_terms():
    """A line with a term is still split, so that no sentence is left out."""
    translator = untrained()
    translator.codec.usual = UsualLine(1)
    line = "O can come pan branco. A gata bebe auga fresca."
    glossary = translator.codec.glossary([("pan", "loaf"), ("a", "the")])
    parts = translator.codec.encode_line(
        1, line, LineConstraints(), SearchOptions(), glossary=glossary
    )
    assert [[forms[0].pieces for forms in part.require] for part in parts] == [
        [tuple(translator.codec.target_pieces("loaf"))],
        [tuple(translator.codec.target_pieces("the"))],
    ]
    (text,) = translator.translate([line], glossary=TERMS)
    assert all(kept([line], [text], TERMS))


def test_other_constraints_and_terms_hold_together():
    translator = untrained()
    given: dict[str, Any] = {"glossary": [("pan", "loaf"), ("pan", "bread")], "beam": 3}
    (text,) = translator.translate(["pan"], require=[["the dog"]], **given)
    assert "the dog" in text
    assert has_form(text, ["loaf", "Loaf", "bread", "Bread"])


@pytest.mark.parametrize(
    ("glossary", "options", "message"),
    [
        ([("pan", " ")], {}, "glossary, term 1: the target term is blank"),
        ([("pan", "x"), ("* pan", "x")], {}, r"glossary, term 2: \* stands alone"),
        ([("\u0640", "x")], {}, "glossary, term 1: the source term is blank"),  # a tatweel alone
        ([("pan", "x" * 201)], {}, "target term has 201 characters, at most 200"),
        ([("pan", "▁x")], {}, r"U\+2581"),
        ([("pan",)], {}, "glossary"),
        ([("pan", "x")], {"sample": True}, "glossary cannot be combined with sample"),
    ],
)
def test_wrong_glossaries(glossary, options, message):
    with pytest.raises(UserError, match=message):
        untrained().translate(LINES, glossary=glossary, **options)


def test_a_translation_that_has_its_terms_stays_as_it_is():
    """The beam of a search for phrases is divided, so it may find a worse translation."""
    translator = untrained(segment=WhitespaceConfig())
    plain = [best for (best,) in translator.stream(LINES, beam=2)]
    terms = [(line, best.pieces[-1]) for line, best in zip(LINES, plain, strict=True)]
    texts = [best.text for best in plain]
    assert translator.translate(LINES, glossary=terms, beam=2) == texts
    assert translator.translate(LINES, require=[[t] for _, t in terms], beam=2) == texts


APOSTROPHES = "'’‘ʼʻʹʽ`´′՚Ꞌ"
letters = st.characters(categories=["Ll", "Lo"], max_codepoint=0x58F)
word_parts = st.text(letters, min_size=1, max_size=5)


@given(
    word_parts,
    word_parts | st.just(""),
    st.sampled_from(APOSTROPHES),
    st.sampled_from(APOSTROPHES),
    st.sampled_from(["gn", "uk", "en", "fr", "haw", "sw", "qu", "uz", "it", "mi"]),
    st.booleans(),
    st.booleans(),
)
def test_all_apostrophes_are_one_in_plain_and_in_tokenized_lines(
    first, last, of_term, of_line, lang, tokenized, exact
):
    line = f"Aa {first}{of_line}{last} bb."
    if tokenized:
        line = " ".join(Moses(tokenized=False, exact=exact).tokenize(line, lang))
    glossary = Glossary([(f"{first}{of_term}{last}", "x")], (lang, "en"), tokenized)
    assert glossary.find(line), line
