"""The rules of Moses: sacremoses with corrections, for plain text of any language.

``nmt-export`` copies this file next to translate.py, so it imports only sacremoses, its
dependencies, and the standard library. ``code`` is the code of a language in sacremoses.

sacremoses separates signs that its detokenizer does not attach again: ``mba'e`` of Guarani became
``mba 'e``, and ``a/b`` became ``a / b``. ``exact_words`` avoids this: where the detokenizer would
add a space, it keeps two words as one.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from sacremoses import MosesDetokenizer, MosesTokenizer


MAX_ROUNDS = 4  # of joining words, each of which may change where the quotes of a line belong
_LETTERS = ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd")  # categories of letters and digits
_EAST_ASIAN = regex.compile(r"[\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}]")


def words_of(line: str, code: str) -> list[str]:
    """Return the words of a line, with escapes such as ``&apos;``."""
    return _tokenizer(code).tokenize(line)


def exact_words(line: str, code: str) -> list[str]:
    """Return the words of a line so that ``detokenize`` adds no space between them."""
    words, plain = words_of(line, code), " ".join(line.split())
    for round_ in range(1, MAX_ROUNDS + 1):
        text = detokenize(words, code, exact=True)
        if text == plain:
            break
        before, after = (_spaces_before(words, string, code) for string in (plain, text))
        if before is None:  # the tokenizer changed a character
            break
        joins = [not old for old in before]
        if after is not None:  # otherwise the detokenizer put a space into a word
            added = [new and not old for old, new in zip(before, after, strict=True)]
            joins = joins if any(added) and round_ == MAX_ROUNDS else added
        if not any(joins[1:]):
            break
        joined = words[:1]
        for word, join in zip(words[1:], joins[1:], strict=True):
            joined[-1:] = [joined[-1] + word] if join else [joined[-1], word]
        words = joined
    return words


def _spaces_before(words: list[str], text: str, code: str) -> list[bool] | None:
    """Return whether a text has a space before each word; None if it has other characters."""
    found, position = [], 0
    for word in words:
        plain = _detokenizer(code, hyphens=False).unescape_xml(word)
        space = text.startswith(" ", position)
        position += space
        if not text.startswith(plain, position):
            return None
        found.append(space)
        position += len(plain)
    return found


def detokenize(words: list[str], code: str, exact: bool = False) -> str:
    """Return words as plain text, without escapes.

    Args:
        exact: the words are those of ``exact_words``; guillemets are attached too.
    """
    text = _detokenizer(code, hyphens=not exact).detokenize(words)
    if text.isascii():
        return text
    return _attach_marks(_attach_guillemets(text) if exact and code != "fr" else text)


def detokenize_unchanged(words: list[str], code: str) -> str:
    """Return words as plain text by unmodified sacremoses, as other toolkits do."""
    return _detokenizer(code, hyphens=True).detokenize(words)


@functools.cache
def _tokenizer(code: str) -> MosesTokenizer:
    """Return sacremoses' tokenizer, made faster, with all letters and combining marks in words.

    sacremoses builds a set of all lower-case letters for each full stop, and scans a hundred
    thousand characters for each Chinese or Japanese character. It does not count combining marks
    as letters and separates them, in Thai, Khmer or Yoruba words and in decomposed text. It does
    not know newer letters either, such as those of Adlam and Osage, or small Cherokee letters. No
    detokenizer can undo that. All other words are the same as in sacremoses.
    """
    from sacremoses import MosesTokenizer  # here: the import takes half a second

    tokenizer = MosesTokenizer(code)
    lower, alpha = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
    tokenizer.islower = lower.issuperset
    tokenizer.isanyalpha = lambda text: not alpha.isdisjoint(text)
    marks = _marks()
    word_characters = _ranges(tokenizer.IsAlnum + _newer_letters() + marks)
    separated = rf"([^{word_characters}\s\.'\`\,\-][{_ranges(marks)}]*)"
    tokenizer.PAD_NOT_ISALNUM = re.compile(separated), r" \1 "
    return tokenizer


@functools.cache
def _detokenizer(code: str, hyphens: bool) -> MosesDetokenizer:
    """Return a detokenizer; ``hyphens``: ``@-@`` is a hyphen that a tokenizer has split."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(code)
    if not hyphens:
        detokenizer.AGGRESSIVE_HYPHEN_SPLIT = re.compile("(?!)"), ""
    return detokenizer


@functools.cache
def _newer_letters() -> str:
    """Return the letters and digits that are newer than the tables of sacremoses.

    Chinese, Japanese and Korean letters are left out: sacremoses has rules of its own for them.
    """
    codes = (*range(0x300, 0x3400), *range(0xA000, 0xAC00), *range(0x10000, 0x20000))
    characters = (chr(code) for code in codes if unicodedata.category(chr(code)) in _LETTERS)
    return "".join(char for char in characters if not _EAST_ASIAN.match(char))


@functools.cache
def _marks() -> str:
    """Return the combining marks, and the joiners inside words of Persian or Hindi."""
    codes = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))
    return "\u200c\u200d" + "".join(
        chr(code) for code in codes if unicodedata.category(chr(code))[0] == "M"
    )


def _ranges(letters: str) -> str:
    """Return letters as ranges for a regular expression."""
    ranges: list[list[int]] = []
    for code in sorted(set(map(ord, letters))):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


_LEFT, _RIGHT = "«\u2039", "»\u203a"  # guillemets that point to the left and to the right
_GUILLEMETS = re.compile(f"(?<=[{_LEFT}]) | (?=[{_RIGHT}])")
_REVERSED_GUILLEMETS = re.compile(f"(?<=[{_RIGHT}]) | (?=[{_LEFT}])")


def _attach_guillemets(text: str) -> str:
    """Attach guillemets to the text between them, as in «a» or »a«; French has spaces there."""
    first = next((char for char in text if char in _LEFT + _RIGHT), "")
    return (_REVERSED_GUILLEMETS if first in _RIGHT else _GUILLEMETS).sub("", text)


# marks that end a sentence or a clause, in any script; sacremoses attaches those of ASCII
_CLOSING = regex.compile(r" ((?:[^\P{Terminal_Punctuation}\p{ASCII}]|[\u055d…])+)(?= |$)")
# ՛ ՜ ՞ of Armenian and the marks between syllables of Tibetan, inside words or after them
_INSIDE_WORD = regex.compile(r"(?<=[\w\p{M}]) ([\u055b\u055c\u055e\u0f0b\u0f0c])(?: (?=\w))?")
_CLOSING_QUOTE = re.compile(r"([“„][^“”„]*) ”")
_QUOTE_IN_BRACKETS = re.compile(r"(?<=[(\[])“ ")
_OPENING_QUOTE = re.compile(r"(?<=\S)“ ")
_APOSTROPHE = re.compile("(?<=\\w) \u2019 (?=\\w)")
_WIDE_MARK = re.compile(" ?([\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]) ?")
_IDEOGRAPH, _QUOTE = "[\u3001-\u9fff\uff01-\uff65\U00020000-\U0003ffff]", "[“”\u2018\u2019…]"
_BESIDE_IDEOGRAPH = re.compile(f"(?<={_IDEOGRAPH}) (?={_QUOTE})|(?<={_QUOTE}) (?={_IDEOGRAPH})")


def _attach_marks(text: str) -> str:
    """Attach marks that sacremoses leaves separated or attaches to the wrong side.

    These are full stops, commas and other marks of Unicode's property Terminal_Punctuation, such
    as those of Arabic, Hindi, Khmer and Armenian, and the ellipsis; marks inside words of Armenian
    and Tibetan; a quote “ that a ” closes; the apostrophe ’ between letters, in a line without ‘;
    and the wide marks of Chinese and Japanese, with quotes next to their characters.

    Of 4,000 raw lines, more come back unchanged: 3,948 instead of 3,240 in Arabic (Tatoeba), 3,600
    instead of 3,270 in English news, 3,576 instead of 3,387 in Swahili. The few lines that it harms
    had a space before such a mark.
    """
    text = _CLOSING.sub(r"\1", _INSIDE_WORD.sub(r"\1", text))
    text = _CLOSING_QUOTE.sub(r"\1”", text)
    if "”" in text and "„" not in text:
        text = _OPENING_QUOTE.sub(" “", _QUOTE_IN_BRACKETS.sub("“", text))
    if "\u2018" not in text:
        text = _APOSTROPHE.sub("\u2019", text)
    return _BESIDE_IDEOGRAPH.sub("", _WIDE_MARK.sub(r"\1", text))
