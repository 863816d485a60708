"""Normalize Unicode, so that text that looks the same is the same to a model.

``nmt-export`` copies this file next to translate.py, so it imports only the standard library.

The form ``clean`` is NFC (Unicode Standard Annex #15), and it removes invisible characters, which
are common in text copied from web pages and PDF files. These are most of category Cf and of the
property Default_Ignorable_Code_Point, and the tatweel of Arabic. Some scripts need some of them: an
Arabic letter changes its shape next to a joiner, and Khmer marks its words. What stays depends on
the scripts of the neighboring letters, not on the language:

==============================  ===============================================================
soft hyphen, word joiner, byte  dropped
order mark, marks and isolates
of direction, and others
Hangul filler, annotations      become a space
zero width space                stays in words of scripts without spaces, such as Thai, Lao, Khmer,
                                Burmese and Tibetan (core specification, chapters 13, 16 and 23)
zero width non-joiner           stays inside a word with a letter of an Arabic or Indic script
                                (UAX #31, section 2.3; core specification, chapters 9, 12, 13)
zero width joiner               stays next to such a letter, and between two symbols: emoji
                                sequences (UTS #51)
variation selectors             1 to 14 stay after symbols and letters of Arabic or Indic scripts,
                                15 and 16 after emoji, those of Mongolian after its letters; those
                                of Chinese and Japanese characters are dropped (core, 23.4)
tags                            stay in the emoji of flags
tatweel                         dropped between two Arabic letters, which it only stretches (core,
                                9.2); stays where it carries a mark, or stands at the end of a word
==============================  ===============================================================

Of the marks on one letter, 30 stay in both forms.

Signs with a shape stay, although they are of category Cf: U+0600 ARABIC NUMBER SIGN, U+06DD ARABIC
END OF AYAH, the controls of Egyptian hieroglyphs and others.
"""

from __future__ import annotations

import functools
import re
import unicodedata

FORMS = ("none", "nfc", "clean")
MOST_MARKS = 30  # on one letter (Stream-Safe Text Format, UAX #15); to sort more takes seconds
NOT_NFC = "not in Unicode NFC"

# without a shape everywhere; U+17B4 and U+17B5 are deprecated vowels of Khmer
_DROPPED = (
    "\u00ad\u034f\u061c\u17b4\u17b5\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
)
_SPACES = "\u3164\uffa0\ufff9-\ufffb"
_ZWSP, _ZWNJ, _ZWJ, _TATWEEL = "\u200b", "\u200c", "\u200d", "\u0640"
_DEPENDENT = (
    f"{_TATWEEL}\u115f\u1160\u180b-\u180f{_ZWSP}-{_ZWJ}\ufe00-\ufe0f\U000e0020-\U000e007f"
    "\U000e0100-\U000e01ef"
)
_ANY = re.compile(f"[{_DROPPED}{_SPACES}{_DEPENDENT}]")
_DROP, _SPACE = re.compile(f"[{_DROPPED}]+"), re.compile(f"[{_SPACES}]")
_RUN = re.compile(f"[{_DEPENDENT}]+")
_MAYBE_MANY_MARKS = re.compile(rf"[^\w\s\x00-\x7f]{{{MOST_MARKS + 1}}}")

# scripts by the first word of the names of their letters
UNSPACED = "THAI LAO KHMER MYANMAR TIBETAN TAI NEW BALINESE JAVANESE".split()  # noqa: SIM905
JOINING = """ARABIC SYRIAC MANDAIC NKO MONGOLIAN PHAGS-PA MANICHAEAN ADLAM HANIFI SOGDIAN
    DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA TAMIL TELUGU KANNADA MALAYALAM SINHALA TIBETAN
    MYANMAR KHMER BALINESE JAVANESE SUNDANESE CHAKMA GRANTHA NEWA TIRHUTA KAITHI MEETEI LEPCHA LIMBU
    SYLOTI SAURASHTRA TAI BRAHMI SHARADA MODI""".split()  # noqa: SIM905
_EMOJI_SIGNS = "\u203c\u2049\u2139\u3030"  # emoji of other categories than symbols
_KEYCAP, _BLACK_FLAG = "\u20e3", "\U0001f3f4"


def normalize(text: str, form: str) -> str:
    """Return text in a form of ``data.normalize``: none, nfc or clean."""
    if form == "none" or text.isascii():
        return text
    text = unicodedata.normalize("NFC", bounded(text))
    if form == "nfc" or not _ANY.search(text):
        return text
    return unicodedata.normalize("NFC", bounded(_without_shapeless(text)))


def bounded(text: str) -> str:
    """Return text with at most MOST_MARKS marks on a letter; no language needs more."""
    if not _MAYBE_MANY_MARKS.search(text):
        return text
    kept, marks = [], 0
    for char in text:
        marks = marks + 1 if unicodedata.combining(char) else 0
        if marks <= MOST_MARKS:
            kept.append(char)
    return "".join(kept)


def removed(text: str) -> set[str]:
    """Return the characters that the form ``clean`` removes from text after NFC."""
    if text.isascii() or not _ANY.search(text):
        return set()
    text = unicodedata.normalize("NFC", bounded(text))
    kept = _without_shapeless(text)
    return {char for char in set(_ANY.findall(text)) if kept.count(char) < text.count(char)}


def is_shapeless(char: str) -> bool:
    """Return whether a character on its own is invisible."""
    return char != _TATWEEL and _ANY.match(char) is not None


def changes(text: str) -> list[str]:
    """Name the changes of the form ``clean`` in text: NOT_NFC, and ``U+200B ZERO WIDTH SPACE``."""
    if text.isascii():
        return []
    found = [] if unicodedata.is_normalized("NFC", text) else [NOT_NFC]
    gone = sorted(removed(text))
    return found + [f"U+{ord(c):04X} {unicodedata.name(c, 'without a name')}" for c in gone]


def _without_shapeless(text: str) -> str:
    text = _SPACE.sub(" ", _DROP.sub("", text))
    parts, base, end = [], "\n", 0
    for run in _RUN.finditer(text):
        between = text[end : run.start()]
        base = next((c for c in reversed(between) if unicodedata.category(c)[0] != "M"), base)
        end = run.end()
        parts += [between, _kept(run[0], base, text[end : end + 1])]
    return "".join([*parts, text[end:]])


def _kept(run: str, base: str, after: str) -> str:
    """Return a run without the characters that have no effect between its neighbors.

    Args:
        base: the last character before them that is not a mark; a line feed = none.
        after: the character after them.
    """
    kept = ""
    for char in run:
        # a second joiner adds nothing, a second tatweel is seen
        repeated = char in kept and not (char == _TATWEEL or "\U000e0020" <= char <= "\U000e007f")
        if not repeated and _stays(char, base, after):
            kept += char
    return kept


def _stays(char: str, base: str, after: str) -> bool:
    """Return whether a character stays after the letter or symbol ``base`` and before ``after``."""
    left, right = script(base), script(after)
    inside = bool(left and right)  # a word
    joins = left in JOINING or right in JOINING
    if char == _TATWEEL:
        return not (left == right == "ARABIC" and after.isalpha())
    if char == _ZWSP:
        return inside and (left in UNSPACED or right in UNSPACED)
    if char == _ZWNJ:
        return inside and joins
    if char == _ZWJ:
        return joins or (_is_symbol(base) and _is_symbol(after))
    if char in "\ufe0e\ufe0f":
        return _is_symbol(base) or base in _EMOJI_SIGNS or after == _KEYCAP
    if "\ufe00" <= char <= "\ufe0d":
        return _is_symbol(base) or left in JOINING
    if "\u180b" <= char <= "\u180f":
        return left == "MONGOLIAN"
    if char in "\u115f\u1160":
        return "HANGUL" in (left, right)
    return base == _BLACK_FLAG and "\U000e0020" <= char <= "\U000e007f"


@functools.cache
def script(char: str) -> str:
    """Return the script of a letter, mark or digit by its name; "" for other characters."""
    if not char or unicodedata.category(char)[0] not in "LMN":
        return ""
    return unicodedata.name(char, "").partition(" ")[0]


def _is_symbol(char: str) -> bool:
    return bool(char) and unicodedata.category(char) in ("So", "Sm", "Sk")
