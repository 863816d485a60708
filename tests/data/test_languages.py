"""Exchanged and wrong files are noticed, and the real corpora raise no alarm."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import pytest

from nmt.data.languages import LanguageProfile, wrong_languages
from nmt.data.text import read_lines

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
def profile(name: str, split: str, lang: str, lines: int = 600) -> LanguageProfile:
    """The letters of the first lines of a file, with and without punctuation set apart."""
    if not DATA.is_dir():
        pytest.skip("the corpora are not beside the repository")
    found = LanguageProfile()
    for line in itertools.islice(read_lines(DATA / name / f"{split}.{lang}.gz"), lines):
        found.add(line)
    return found


def of(name: str, split: str, *langs: str):
    return tuple(profile(name, split, lang) for lang in langs)


@pytest.mark.parametrize(("name", "src", "tgt"), PAIRS, ids=["-".join(p) for p in PAIRS])
def test_no_false_alarm_and_no_exchange_missed(name, src, tgt):
    langs = (src, tgt)
    train = {"train": of(name, "train", *langs)}
    held_out = {split: of(name, split, *langs) for split in ("dev", "test")}
    assert wrong_languages(train, held_out, langs) == ([], [])

    failures, _ = wrong_languages(train, {"dev": of(name, "dev", tgt, src)}, langs)
    assert len(failures) == 1
    assert failures[0].startswith("source and target are exchanged in dev or in train")

    failures, warnings = wrong_languages(train, {"dev": of(name, "dev", tgt, tgt)}, langs)
    assert failures == []
    assert any(f"dev: the {src} side reads like the {tgt} side of train" in w for w in warnings)

    _, warnings = wrong_languages({"train": of(name, "train", src, src)}, {}, langs)
    assert any("train: both sides read like the same language" in w for w in warnings)

    if "en" in langs:  # all files exchanged: no file speaks against another
        turned = {"train": of(name, "train", tgt, src)}
        _, warnings = wrong_languages(turned, {"dev": of(name, "dev", tgt, src)}, langs)
        assert any("not the en side but the other reads like English" in w for w in warnings)


@pytest.mark.parametrize(("train", "dev", "langs"), ACROSS)
def test_another_domain_is_no_other_language(train, dev, langs):
    sides = {"train": of(train, "train", *langs)}, {"dev": of(dev, "dev", *langs)}
    assert wrong_languages(*sides, langs) == ([], [])


def test_one_exchanged_corpus_of_two():
    langs = ("gl", "en")
    train = {"a": of("ted-gl-en", "train", "gl", "en"), "b": of("ted-gl-en", "train", "en", "gl")}
    failures, _ = wrong_languages(train, {"dev": of("ted-gl-en", "dev", *langs)}, langs)
    assert [f.split(":")[0] for f in failures] == ["source and target are exchanged in dev or in b"]


def lines(text: str) -> LanguageProfile:
    found = LanguageProfile()
    for _ in range(30):
        found.add(text)
    return found


def test_the_script_of_a_language():
    russian = lines("всё смешалось в доме Облонских")
    english = lines("the house of the family was in confusion")
    _, warnings = wrong_languages({"train": (russian, english)}, {}, ("ru", "en"))
    assert warnings == []
    _, warnings = wrong_languages({"train": (english, russian)}, {}, ("ru", "en"))
    assert "train: 0% of the letters of the ru side are Cyrillic: a wrong file?" in warnings
    assert "train: 0% of the letters of the en side are Latin: a wrong file?" in warnings


def test_another_language_of_the_same_script():
    train = {"train": (lines("o can dorme na casa"), lines("the dog sleeps in the house"))}
    dev = {"dev": (lines("szczęście wyższych sfer"), lines("the house of the dog sleeps"))}
    _, warnings = wrong_languages(train, dev, ("gl", "en"))
    assert any("dev: the gl side has" in w and "another language?" in w for w in warnings)


def test_a_little_text_says_nothing():
    few = LanguageProfile()
    few.add("the dog")
    assert wrong_languages({"train": (few, few)}, {"dev": (few, few)}, ("ar", "en")) == ([], [])


def test_likeness_is_a_share():
    one, other = lines("abc abd"), lines("abc xyz")
    assert one.likeness(one) == pytest.approx(1)
    assert one.likeness(other) == other.likeness(one)
    assert 0 < one.likeness(other) < 1
    assert one.likeness(LanguageProfile()) == 0
