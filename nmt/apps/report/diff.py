"""Compare a translation with its reference word by word."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from nmt.data.languages import UNSPACED_CHARACTER


class Part(NamedTuple):
    """A part of a text that differs from another text, or does not."""

    text: str
    differs: bool


def compare(text: str, other: str) -> tuple[list[Part], list[Part]]:
    """Return both texts as parts, with the words marked that the other one lacks at its place.

    A word is text between spaces without its punctuation, which is compared separately. Text of
    scripts without spaces is compared character by character. The parts of a text add up to it,
    with runs of white space as one space.
    """
    words, others = split_words(text), split_words(other)
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    kept, kept_other = [False] * len(words), [False] * len(others)
    for start, start_other, size in matcher.get_matching_blocks():
        kept[start : start + size] = [True] * size
        kept_other[start_other : start_other + size] = [True] * size
    return _parts(text, words, kept), _parts(other, others, kept_other)


def split_words(text: str) -> list[str]:
    """Return the words of a text, each punctuation mark and each character of some scripts."""
    words = [""]
    for char in text:
        if char.isspace():
            words.append("")
        elif _is_alone(char):
            words += [char, ""]
        else:
            words[-1] += char
    return list(filter(None, words))


@functools.cache
def _is_alone(char: str) -> bool:
    if char.isascii():
        return not char.isalnum()
    return unicodedata.category(char)[0] in "PS" or bool(UNSPACED_CHARACTER.match(char))


def _parts(text: str, words: Sequence[str], kept: Sequence[bool]) -> list[Part]:
    """Return the parts of a text; a space between two words that differ belongs to their part."""
    text = " ".join(text.split())
    marked: list[Part] = []  # words, and the spaces between them
    start = 0
    for word, same in zip(words, kept, strict=True):
        begin = text.index(word, start)
        if begin > start:
            marked.append(Part(text[start:begin], differs=marked[-1].differs and not same))
        marked.append(Part(word, not same))
        start = begin + len(word)
    return [
        Part("".join(part.text for part in parts), differs)
        for differs, parts in itertools.groupby(marked, key=lambda part: part.differs)
    ]
