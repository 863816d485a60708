"""Languages: their codes, words and scripts, and a check of the language of each side of a split.

The frequencies of pairs of neighboring letters, including the ends of words, identify a language.
In ten corpora, dev and test sets share 85 to 97 % of their character bigrams with the same side of
the training text, and at most 60 % with the other side. Texts of one language from different
corpora share at least 67 %, texts of different languages at most 64 %.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from typing import TypeAlias

import regex

# ---------------------------------------------------------------- codes, words, scripts

# scripts that do not separate words by spaces, by the first word of the Unicode names of letters
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
# marks of Chinese and Japanese, such as 。 and ー, which Unicode gives to no script
_SHARED = "\u3001-\u303f\u3099-\u309c\u30a0\u30fb\u30fc\uff61-\uff9f"
_UNSPACED = _SHARED + "".join(rf"\p{{{'Han' if name == 'CJK' else name}}}" for name in UNSPACED)
# Tibetan has a mark after each syllable; in the other scripts, each letter counts as a word
_ALONE = rf"[[{_UNSPACED}]&&[\p{{L}}\p{{M}}]--\p{{Tibetan}}]"

# patterns of ``regex``: to ``re``, a vowel sign that is a character of its own ends a word
UNSPACED_CHARACTER = regex.compile(f"[{_UNSPACED}]")
# letters of scripts without spaces between words (except Tibetan), and a space between two
UNSPACED_LETTER = regex.compile(rf"(?V1)[{_ALONE}&&\p{{L}}]")
SPACE_INSIDE = regex.compile(rf"(?V1)(?<={_ALONE})[ \u3000]+(?={_ALONE})")
# words of tokenized text have at most so many letters; raw text has spaces between phrases only
LONGEST_WORD = 7
LETTERS = regex.compile(r"[^\W\d_]+")  # neighboring letters, with their combining signs
WORD = regex.compile(rf"(?V1){_ALONE}|[[^\W\d_]--{_ALONE}]+")
WORD_OR_NUMBER = regex.compile(rf"(?V1){_ALONE}|[\w--{_ALONE}]+")


@functools.cache
def base_language(lang: str) -> str:
    """Return the shortest code of a language, without script and region.

    sacremoses, sacreBLEU and our own tables know a language by this code: ``pt`` for pt-BR, ``en``
    for eng and eng_Latn, ``ar`` for arb, the standard variety of Arabic. An unknown code stays.
    """
    code = re.split("[-_]", lang)[0].lower()
    if len(code) != 3:
        return code
    if code == "tgl":  # the library would return fil, Filipino
        return "tl"
    from langcodes import standardize_tag  # here: the import is slow, and most codes are short

    try:
        return standardize_tag(code, macro=True).partition("-")[0]
    except ValueError:
        return code


@functools.cache
def standard_code(lang: str) -> str:
    """Return the usual code of a language: ``en`` for eng_Latn, ``pt-BR`` for pt_br.

    An unknown code stays.
    """
    from langcodes import Language

    try:
        return Language.get(lang).simplify_script().to_tag()
    except ValueError:
        return lang


@functools.cache
def language_name(lang: str) -> str:
    """Return the English name of a language."""
    from langcodes import Language

    try:
        name = Language.get(lang).simplify_script().display_name()
    except ValueError:
        return lang
    return lang if name.startswith("Unknown language") else name


# ISO 15924: scripts in which no space stands between two sentences, as between two words
_SENTENCES_UNSPACED = {
    *("Hans", "Hant", "Hani", "Hanb", "Bopo", "Jpan", "Hrkt", "Hira", "Kana"),
    *("Thai", "Laoo", "Khmr", "Mymr", "Lana", "Talu", "Tale"),
}


@functools.cache
def sentence_space(lang: str) -> str:
    """Return the separator of two sentences in a language: a space, or nothing for some scripts.

    The script is that of the code, as in zh_Latn, else the usual one of the language.
    """
    from langcodes import Language

    for code in (lang, base_language(lang)):
        try:
            script = Language.get(code).maximize().script
        except ValueError:
            continue
        return "" if script in _SENTENCES_UNSPACED else " "
    return " "


def own_name(lang: str) -> str:
    """Return the name of a language in the language, such as galego; else its English name."""
    from langcodes import Language

    try:
        name = Language.get(lang).simplify_script().autonym()
    except ValueError:
        return lang
    return language_name(lang) if name.startswith("Unknown language") else name


MIN_SCRIPT_SHARE = 0.5  # of the letters of a text in a language with one script

# languages with one script, by the first word of the Unicode names of its letters
_SCRIPTS = {
    "ARABIC": "ar fa ur ps ug ckb arz",
    "HEBREW": "he yi",
    "CYRILLIC": "ru uk be bg mk ba tt tg",
    "GREEK": "el",
    "ARMENIAN": "hy",
    "GEORGIAN": "ka",
    "ETHIOPIC": "am ti",
    "DEVANAGARI": "hi mr ne",
    "BENGALI": "bn as",
    "GUJARATI": "gu",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "SINHALA": "si",
    "THAI": "th",
    "LAO": "lo",
    "KHMER": "km",
    "MYANMAR": "my",
    "TIBETAN": "bo dz",
    "HANGUL": "ko",
    "HIRAGANA KATAKANA CJK": "ja",
    "CJK": "zh",
    "LATIN": "en de fr es pt it nl sv da no nb nn fi is pl cs sk sl hr hu ro et lv lt tr vi id tl "
    "fil gl ca eu ga cy mt sw zu xh yo ig so",
}
# ISO 15924, as in uzn_Cyrl
_SCRIPT_OF_SUBTAG = {
    "Arab": "ARABIC", "Armn": "ARMENIAN", "Beng": "BENGALI", "Cyrl": "CYRILLIC",
    "Deva": "DEVANAGARI", "Ethi": "ETHIOPIC", "Geor": "GEORGIAN", "Grek": "GREEK",
    "Gujr": "GUJARATI", "Hang": "HANGUL", "Hans": "CJK", "Hant": "CJK", "Hebr": "HEBREW",
    "Jpan": "HIRAGANA KATAKANA CJK", "Khmr": "KHMER", "Knda": "KANNADA", "Laoo": "LAO",
    "Latn": "LATIN", "Mlym": "MALAYALAM", "Mymr": "MYANMAR", "Sinh": "SINHALA", "Taml": "TAMIL",
    "Telu": "TELUGU", "Thai": "THAI", "Tibt": "TIBETAN",
}  # fmt: skip
_SCRIPT = {lang: script for script, langs in _SCRIPTS.items() for lang in langs.split()}


@functools.cache
def script_of(lang: str) -> str | None:
    """Return the script of a language; None if it has several or is unknown.

    A code may name its script, as uzn_Cyrl does. A script is the first word of the Unicode names of
    its letters, such as LATIN. Japanese has three, separated by spaces.
    """
    if subtag := re.search("[-_]([A-Za-z]{4})(?![A-Za-z])", lang):
        return _SCRIPT_OF_SUBTAG.get(subtag[1].title())
    return _SCRIPT.get(base_language(lang))


def scripts_of(text: str | Counter[str]) -> Counter[str]:
    """Count the letters of each script in a text, or in counts of its characters."""
    scripts: Counter[str] = Counter()
    for char, count in Counter(text).items():
        if char.isalpha():
            scripts[script_of_letter(char)] += count
    return scripts


def script_share(text: str | Counter[str], script: str) -> float:
    """Return the share of the letters of ``scripts_of`` that are of a script; 1 without letters."""
    if isinstance(text, str) and text.isascii() and "LATIN" in script:
        return 1.0
    scripts = scripts_of(text)
    return sum(scripts[name] for name in script.split()) / scripts.total() if scripts else 1.0


@functools.cache
def script_of_letter(letter: str) -> str:
    """Return the first word of a letter's Unicode name, which is its script: ``LATIN``, ``CJK``.

    The sign for long vowels, KATAKANA-HIRAGANA in its name, counts as KATAKANA.
    """
    return re.split("[ -]", unicodedata.name(letter, "OTHER"), maxsplit=1)[0]


# ---------------------------------------------------------------- character bigrams

MIN_LETTER_PAIRS = 500  # fewer do not identify a language


class LanguageProfile:
    """Counts of the character bigrams of a text."""

    def __init__(self) -> None:
        self.pairs: Counter[str] = Counter()
        self.words = self.the = 0

    def add(self, line: str) -> None:
        """Count a line."""
        words = LETTERS.findall(line.lower())
        # A combining sign counts as a letter. Without the vowel signs, Hindi and Marathi would
        # share 83 % of their pairs, as the same language does; with them, they share 70 %.
        text = f" {' '.join(words)} " if words else ""
        self.pairs.update(map(str.__add__, text, text[1:]))
        self.words += len(words)
        self.the += words.count("the")

    @property
    def size(self) -> int:
        """Number of character bigrams counted."""
        return self.pairs.total()

    @property
    def enough(self) -> bool:
        """Whether there is enough text to identify its language."""
        return self.size >= MIN_LETTER_PAIRS

    def overlap(self, other: LanguageProfile) -> float:
        """Return the share of character bigrams that two texts have in common, 0 to 1."""
        size, other_size = max(1, self.size), max(1, other.size)
        return sum(min(n / size, other.pairs[p] / other_size) for p, n in self.pairs.items())

    def script(self, names: str) -> float:
        """Return the share of the letters that are of one of these scripts."""
        characters: Counter[str] = Counter()
        for pair, count in self.pairs.items():
            characters[pair[1]] += count  # each letter is the second of one pair
        return script_share(characters, names)

    @property
    def english(self) -> float:
        """Share of the word "the": 3 to 7 % in English, 0.1 % in other languages."""
        return self.the / max(1, self.words)


Profiles: TypeAlias = tuple[LanguageProfile, ...]  # of source and target, or of a text
