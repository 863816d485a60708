"""Letters by language: capital and small letters, and the forms in which texts are compared.

Sources: SpecialCasing.txt and CaseFolding.txt of Unicode, and the rules of CLDR for the capitals of
Greek, Armenian, Dutch and Irish.
"""
# ruff: noqa: RUF001

from __future__ import annotations

import functools
import html
import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import regex

from nmt.text.languages import UNSPACED_CHARACTER, WORD_OR_NUMBER, base_language, script_of
from nmt.text.unicode import MOST_MARKS, bounded

# ---------------------------------------------------------------- capital and small letters

_TWO_I = {"tr", "az", "crh", "gag", "zza", "diq", "kiu"}  # i and ı, with the capitals İ and I
_TWO_I_IN_LATIN = {"kk", "tt", "ba"}
_UNMARKED = "(?![\u0300-\u036f])"  # the capital of î is Î
_GEORGIAN = regex.compile("[\u10d0-\u10ff]+")  # Unicode has capitals, writers do not use them
_ACCENTED_GREEK = regex.compile(r"(\p{Greek})(\p{Mn}+)")
_KEPT_IN_CAPITALS = "\u0308\u0345"  # dialytika, and the iota below, whose capital is a letter
# an accent on the first of two vowels says that they are not a diphthong; a capital says it by ¨
_HIATUS = re.compile("([αεηοωΑΕΗΟΩ]\u0301[ιυΙΥ])(?![\u0300-\u0345])")
_IRISH_VOWEL = "(?=[AEIOUÁÉÍÓÚ])"
# letters before the first one of an Irish name stay small: tAthair, nGaeilge
_IRISH = regex.compile(
    rf"\b(?:bh(?=F)|m(?=B)|g(?=C)|b(?=P)|d(?=T)|t(?=S)|n(?=[DG])|(?:h|[tn]-?){_IRISH_VOWEL})"
)


@functools.cache
def _has_two_i(lang: str) -> bool:
    base = base_language(lang)
    return base in _TWO_I or (base in _TWO_I_IN_LATIN and script_of(lang) == "LATIN")


def upper(text: str, lang: str = "") -> str:
    """Return text in capital letters, as people write them in a language."""
    base = base_language(lang)
    if _has_two_i(lang):
        text = text.replace("ﬁ", "fi").replace("ﬃ", "ffi")
        text = re.sub(f"i{_UNMARKED}", "İ", text)
    if base == "lt":  # which writes the dot of an i below an accent
        text = re.sub("(?<=[ij])\u0307", "", text)
    text = text.replace("և", "ԵՒ" if base == "hyw" else "ԵՎ")
    if _ACCENTED_GREEK.search(decomposed := unicodedata.normalize("NFD", bounded(text))):
        decomposed = _HIATUS.sub("\\1\u0308", decomposed)
        text = unicodedata.normalize("NFC", _ACCENTED_GREEK.sub(_without_accent, decomposed))
    small = _IRISH if base == "ga" else _GEORGIAN
    parts, end = [], 0
    for found in small.finditer(text):
        parts += [text[end : found.start()].upper(), found[0]]
        end = found.end()
    return "".join([*parts, text[end:].upper()])


def _without_accent(found: regex.Match[str]) -> str:
    letter, marks = found.groups()
    start, end = found.span()
    around = found.string[max(0, start - 1) : start] + found.string[end : end + 1]
    if letter in "ηΗ" and marks == "\u0301" and not any(map(str.isalpha, around)):
        return found[0]  # the word ή, "or": without its accent it is the article
    return letter + "".join(mark for mark in marks if mark in _KEPT_IN_CAPITALS)


def capitalized(word: str, lang: str = "") -> str:
    """Return a word with a capital initial; the other letters stay."""
    base, first = base_language(lang), word[:1]
    if first == "i" and _has_two_i(lang):
        first = "İ"
    elif first == "և" and base != "hyw":
        first = "Եվ"
    elif base == "nl" and word[:2] == "ij":
        return f"IJ{word[2:]}"
    elif not (_GEORGIAN.match(first) or (base == "ga" and _IRISH.match(word))):
        first = first.title()
    return first + word[1:]


def lower(text: str, lang: str = "") -> str:
    """Return text in small letters."""
    if _has_two_i(lang):
        text = re.sub(f"I{_UNMARKED}", "ı", text.replace("I\u0307", "i"))
    if base_language(lang) == "ga":
        text = regex.sub(rf"\b([tn]){_IRISH_VOWEL}", r"\1-", text)
    # without the dot above, which an i of other languages would get in addition to its own
    return text.replace("İ", "i").lower()


# ---------------------------------------------------------------- forms to compare

# the same sign as people and programs type it
_SAME = {"'": "’‘ʼʻʹʽ`´′՚ꞌꞋ׳", '"': "״", "-": "‐‑֊־", " ": "\u3164\uffa0\ufff9\ufffa\ufffb"}
# languages in which an apostrophe inside a word is a letter, and does not separate two words
_LETTER_APOSTROPHE = {"uk", "be", "rue", "uz", "kaa", "br", "sw", "haw", "to", "sm", "ty", "nv"}
_INNER_APOSTROPHE = regex.compile(r"(?<=\p{L}\p{M}*+)'(?=\p{L})")
# ignored in comparisons: invisible characters, tatweel, vowel signs of Arabic and Hebrew
_LEFT_OUT = regex.compile(
    r"(?V1)[[\p{Default_Ignorable_Code_Point}--[\u3164\uffa0]]\u0640\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7"
    r"\u0610-\u061a\u064b-\u0652\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed]"
)
_SHAPES = {"<wide>", "<narrow>", "<initial>", "<medial>", "<final>", "<isolated>"}
_CLUSTER = regex.compile(r"\X")


class Compared(NamedTuple):
    """Text in the form ``compared``, with the places of its characters in the original.

    Attributes:
        text: in NFC.
        places: of each character and of the end, as an index in the original.
    """

    text: str
    places: list[int]


def compared(text: str, lang: str = "") -> Compared:
    """Return text in the form for case-sensitive comparison.

    Each of its characters is what a reader sees: composed, of normal width, an Arabic letter
    without its shape, a ligature as its letters. All apostrophes are one. Characters without a
    shape and the vowel signs of Arabic and Hebrew are left out.
    """
    if text.isascii():
        form, places = text.replace("`", "'"), list(range(len(text) + 1))
    else:
        kept: Sequence[int] = range(len(text) + 1)
        if _LEFT_OUT.search(text):
            kept = [i for i in kept if not _LEFT_OUT.match(text, i)]
            text = "".join(text[i] for i in kept[:-1])
        clusters = _CLUSTER.findall(text)
        if max(map(len, clusters), default=0) > MOST_MARKS:
            step = MOST_MARKS
            clusters = [c[i : i + step] for c in clusters for i in range(0, len(c), step)]
        parts = list(map(_compared_cluster, clusters))
        starts = itertools.accumulate(map(len, clusters), initial=0)
        places = [kept[at] for part, at in zip(parts, starts, strict=False) for _ in part]
        form = "".join(parts)
        places.append(kept[-1])
    if base_language(lang) in _LETTER_APOSTROPHE:
        form = _INNER_APOSTROPHE.sub("ʼ", form)
    return Compared(form, places)


_ONE_SIGN = str.maketrans({sign: one for one, signs in _SAME.items() for sign in signs})


@functools.lru_cache(maxsize=1 << 16)
def _compared_cluster(cluster: str) -> str:
    decomposed = "".join(map(_without_shape, unicodedata.normalize("NFD", cluster)))
    signs = decomposed.translate(_ONE_SIGN)
    return unicodedata.normalize("NFC", _LEFT_OUT.sub("", signs))


@functools.cache
def _without_shape(char: str) -> str:
    tag, _, codes = unicodedata.decomposition(char).partition(" ")
    letter = char.isalpha() and not "\u3131" <= char <= "\u318e"  # those of Hangul stay apart
    if tag in _SHAPES or (tag == "<compat>" and letter):
        return "".join(_without_shape(chr(int(code, 16))) for code in codes.split())
    return char


def fold(text: str, lang: str = "") -> str:
    """Return text in the form for case-insensitive comparison.

    Turkish and related languages have two letters i; in others, a dot above an i is ignored. ß is
    ss, a final sigma is a sigma, and և, եւ and եվ are the same.
    """
    two_i = _has_two_i(lang)
    if text.isascii():
        return (text.replace("I", "ı") if two_i else text).lower()
    text = unicodedata.normalize("NFD", bounded(text))
    if two_i:
        text = re.sub(f"I{_UNMARKED}", "ı", text)
    text = re.sub("(?<=[ij])\u0307", "", text.casefold())
    return unicodedata.normalize("NFC", text).replace("եվ", "եւ")


def fold_capitals(text: str, lang: str = "") -> str:
    """Return ``fold`` of a text in capital letters: Greek ones have no accents.

    Do not compare words in small letters in this way: νόμος and νομός are two words.
    """
    return fold(upper(text, lang), lang)


# ---------------------------------------------------------------- repeated phrases

MAX_PERIOD = 16  # words of a phrase whose repetitions are counted


def repetitions(text: str, least_letters: int = 0) -> int:
    """Return how many times in a row a phrase of 1 to 16 words occurs: 2 for "no, no".

    It is 1 if nothing is repeated. A letter of a script without spaces counts as a word.

    Args:
        least_letters: of all repetitions together; fewer are not counted, such as "ha ha ha". A
            letter of a script without spaces counts as two.
    """
    words = WORD_OR_NUMBER.findall(fold(html.unescape(text)))
    most = 1
    if len(set(words)) == len(words):
        return most
    for period in range(1, min(MAX_PERIOD, len(words) // 2) + 1):
        run = 0
        for end, (word, earlier) in enumerate(zip(words[period:], words, strict=False), period + 1):
            run = run + 1 if word == earlier else 0
            if (times := run // period + 1) > most:
                phrases = words[end - times * period : end]
                if not least_letters or _letters(phrases) >= least_letters:
                    most = times
    return most


def _letters(words: Iterable[str]) -> int:
    text = "".join(words)
    return len(text) + len(UNSPACED_CHARACTER.findall(text))
