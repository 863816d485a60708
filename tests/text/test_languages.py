"""Languages: their codes, and the check of the language of each side."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from pathlib import Path

import pytest

from nmt.data.checks import language_findings
from nmt.data.lines import read_lines
from nmt.text.languages import LanguageProfile, base_language

DATA = Path(__file__).resolve().parents[2] / "../shared/data"
CORPORA = {
    "bible-en-ar-vi-tl": "en ar vi tl",
    "evbnews-en-vi": "en vi",
    "lafand-en-sw": "en sw",
    "multi30k/raw": "en de fr cs",
    "multi30k/tok": "en de fr cs",
    "tanaka-ja-en": "ja en",
    "tatoeba-ar-en": "ar en",
    "ted-az-en": "az en",
    "ted-gl-en": "gl en",
    "ui-he-en": "he en",
    "ui-sk-en": "sk en",
}
PAIRS = [
    (name, src, tgt)
    for name, langs in CORPORA.items()
    for src, tgt in itertools.permutations(langs.split(), 2)
]
ACROSS = [  # training text and dev set of other domains
    ("bible-en-ar-vi-tl", "tatoeba-ar-en", ("ar", "en")),
    ("tatoeba-ar-en", "bible-en-ar-vi-tl", ("ar", "en")),
    ("bible-en-ar-vi-tl", "evbnews-en-vi", ("en", "vi")),
    ("evbnews-en-vi", "bible-en-ar-vi-tl", ("en", "vi")),
]


@functools.cache
def profile(name: str, split: str, lang: str) -> LanguageProfile:
    """Return the profile of the first 600 lines of a file."""
    if not DATA.is_dir():
        pytest.skip("needs the corpora in ../shared/data")
    found = LanguageProfile()
    for line in itertools.islice(read_lines(DATA / name / f"{split}.{lang}.gz"), 600):
        found.add(line)
    return found


def check(train, held_out, langs: tuple[str, str]) -> tuple[list[str], list[str]]:
    langs_of = dict.fromkeys((*train, *held_out), langs)
    found = list(language_findings(train, held_out, langs_of))
    failures, warnings = ([f.message() for f in found if f.error is e] for e in (True, False))
    return failures, warnings


def of(name: str, split: str, *langs: str):
    return tuple(profile(name, split, lang) for lang in langs)


@pytest.mark.parametrize(("name", "src", "tgt"), PAIRS, ids=["-".join(p) for p in PAIRS])
def test_swapped_files_are_found_without_false_alarms(name, src, tgt):
    langs = (src, tgt)
    train = {"train": of(name, "train", *langs)}
    held_out = {split: of(name, split, *langs) for split in ("dev", "test")}
    assert check(train, held_out, langs) == ([], [])

    failures, _ = check(train, {"dev": of(name, "dev", tgt, src)}, langs)
    assert len(failures) == 1
    assert failures[0].startswith("dev: source and target are swapped in dev or in train")

    failures, warnings = check(train, {"dev": of(name, "dev", tgt, tgt)}, langs)
    assert failures == []
    assert any(f"dev: the {src} side is more like the {tgt} side of train" in w for w in warnings)

    _, warnings = check({"train": of(name, "train", src, src)}, {}, langs)
    assert any("train: source and target seem to be the same language" in w for w in warnings)

    if "en" in langs:  # all files are swapped, so they agree with each other
        swapped = {"train": of(name, "train", tgt, src)}
        _, warnings = check(swapped, {"dev": of(name, "dev", tgt, src)}, langs)
        assert any("the other side seems to be English, not the en side" in w for w in warnings)


@pytest.mark.parametrize(("train", "dev", "langs"), ACROSS)
def test_other_domain_is_not_another_language(train, dev, langs):
    sides = {"train": of(train, "train", *langs)}, {"dev": of(dev, "dev", *langs)}
    assert check(*sides, langs) == ([], [])


def test_one_swapped_corpus_of_two():
    langs = ("gl", "en")
    train = {"a": of("ted-gl-en", "train", "gl", "en"), "b": of("ted-gl-en", "train", "en", "gl")}
    failures, _ = check(train, {"dev": of("ted-gl-en", "dev", *langs)}, langs)
    assert [f.split(":")[1] for f in failures] == [" source and target are swapped in dev or in b"]


def lines(text: str) -> LanguageProfile:
    found = LanguageProfile()
    for _ in range(30):
        found.add(text)
    return found


def test_lines_without_letters_have_no_letter_pairs():
    profile = LanguageProfile()
    for _ in range(600):
        profile.add("123 , 4")
    assert not profile.enough


def test_the_script_of_a_language():
    russian = lines("всё смешалось в доме Облонских")
    english = lines("the house of the family was in confusion")
    _, warnings = check({"train": (russian, english)}, {}, ("ru", "en"))
    assert warnings == []
    _, warnings = check({"train": (english, russian)}, {}, ("ru", "en"))
    assert any("train: only 0% of the letters of the ru side are Cyrillic" in w for w in warnings)
    assert any("train: only 0% of the letters of the en side are Latin" in w for w in warnings)


def test_languages_that_differ_in_vowel_signs():
    one, other = lines("में को की कि से हूँ है"), lines("मी का के का सू हा ही")
    assert one.overlap(other) < 0.5
    assert check({"train": (one, other)}, {}, ("hi", "mr")) == ([], [])


def test_combining_signs_are_of_any_script():
    """Their Unicode names do not begin with the name of a script."""
    vietnamese = lines(unicodedata.normalize("NFD", "Tiếng Việt có nhiều dấu ở mỗi chữ"))
    english = lines("the house of the family was in confusion")
    assert vietnamese.script("LATIN") == 1
    assert "e\u0302" in vietnamese.pairs
    assert check({"train": (vietnamese, english)}, {}, ("vi", "en")) == ([], [])


def test_another_language_of_the_same_script():
    train = {"train": (lines("o can dorme na casa"), lines("the dog sleeps in the house"))}
    dev = {"dev": (lines("szczęście wyższych sfer"), lines("the house of the dog sleeps"))}
    _, warnings = check(train, dev, ("gl", "en"))
    assert any("dev: the gl side shares only" in w and "the same language" in w for w in warnings)


def test_little_text_raises_no_warning():
    few = LanguageProfile()
    few.add("the dog")
    assert check({"train": (few, few)}, {"dev": (few, few)}, ("ar", "en")) == ([], [])


def test_overlap_is_a_share():
    one, other = lines("abc abd"), lines("abc xyz")
    assert one.overlap(one) == pytest.approx(1)
    assert one.overlap(other) == other.overlap(one)
    assert 0 < one.overlap(other) < 1
    assert one.overlap(LanguageProfile()) == 0


@pytest.mark.parametrize(
    ("code", "base"),
    [
        ("en", "en"),
        ("pt-BR", "pt"),
        ("PT_br", "pt"),
        ("eng_Latn", "en"),
        ("glg", "gl"),
        ("ger", "de"),  # ISO 639-2 has two codes for German
        ("deu", "de"),
        ("arb_Arab", "ar"),  # the standard variety of a group
        ("cmn", "zh"),
        ("swc", "sw"),
        ("ory", "or"),
        ("chr", "chr"),  # no code of two letters
        ("yue", "yue"),
        ("x1y", "x1y"),  # not a code
        ("source", "source"),
        ("tl", "tl"),
        ("tgl_Latn", "tl"),
        ("", ""),
    ],
)
def test_a_language_has_one_code(code: str, base: str) -> None:
    assert base_language(code) == base
