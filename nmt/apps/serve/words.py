"""Where the words of tokenized text are in plain text, and how probable the model found them.

Word alignments count words of tokenized text, which users do not see. The page and other programs
mark words in the text itself, so the server gives the position of each word.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nmt.decoding.codec import TextCodec, Translation

MAX_GAP = 8  # characters between two words that the tokenizer does not show


class Word(NamedTuple):
    """A word of tokenized text.

    Attributes:
        start, end: its position in the plain text, in Unicode code points. Equal if the plain text
            does not contain the word, for example after normalization.
        probability: of the word, given the source and the words before; None = not requested.
    """

    start: int
    end: int
    probability: float | None = None


def source_words(
    codec: TextCodec, line: str, split: str = "line", src: str | None = None
) -> list[Word]:
    """Return the words of a source line, as its alignment counts them.

    Args:
        split: as in ``SearchOptions``.
        src: its language; None = the source language of the model.
    """
    pieces = [piece for _, part_pieces in codec.divide(line, split, src) for piece in part_pieces]
    return _place(_group(codec, pieces)[0], line)


def target_words(codec: TextCodec, translation: Translation) -> list[Word]:
    """Return the words of a translation.

    A probability is the product of those of the word's pieces.
    """
    words, ends = _group(codec, translation.pieces)
    placed = _place(words, translation.text)
    log_probs = np.delete(translation.token_log_probs, translation.eos)
    if not len(log_probs):  # not requested
        return placed
    return [
        Word(word.start, word.end, math.exp(sum(log_probs[first:last])))
        for word, first, last in zip(placed, [0, *ends], ends, strict=False)
    ]


def _group(codec: TextCodec, pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the words that pieces form, and the index of the piece after each word."""
    strings = [codec.segmenter.surface(piece) for piece in pieces]
    ends = [index for index, end in enumerate(codec.word_ends(pieces), 1) if end]
    spans = itertools.pairwise([0, *ends])
    return ["".join(strings[first:last]).strip(" ") for first, last in spans], ends


def _place(words: Sequence[str], text: str) -> list[Word]:
    """Find each word in the text, from left to right."""
    placed, position, gap = [], 0, MAX_GAP
    for word in words:
        start = end = position
        plain = html.unescape(word)  # Moses escapes some characters
        for spelling in dict.fromkeys((plain, plain.strip("@"), word)):
            index = text.find(spelling, position) if spelling else -1
            if 0 <= index - position <= gap:
                start, end = index, index + len(spelling)
                break
        # the next word is behind this one, which the text may have in another form
        gap = MAX_GAP if end > start else gap + MAX_GAP + len(plain)
        placed.append(Word(start, end))
        position = end
    return placed
