"""Translate the lines of a document with a model, and locate the words of its alignment.

Word alignments count words of tokenized text, which users do not see. Documents, the page of
nmt-serve and other programs mark words in the text itself, so ``Word`` has the position of each.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nmt.apps.documents.lines import Link, Phrases, Translate, Translated
from nmt.decoding.codec import TextCodec, Translation

if TYPE_CHECKING:
    from nmt.decoding.options import SearchOptions
    from nmt.decoding.translator import Translator

MAX_GAP = 8  # maximum characters between two words that the tokenizer drops


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


def linked(
    alignment: Iterable[Sequence[int]], sources: Sequence[Word], targets: Sequence[Word]
) -> list[Link]:
    """Return a word alignment as positions in both texts."""
    return [
        Link(*sources[i][:2], *targets[j][:2])
        for i, j in alignment
        if i < len(sources) and j < len(targets)
    ]


def translated(text: str, short: bool, finished: bool, links: list[Link] | None) -> Translated:
    """Return the translation of a line, with its problem if text is missing."""
    problem = ""
    if short:
        problem = "far too short, so text is missing"
    elif not finished:
        problem = "cut at the length limit"
    return Translated(text, links, problem)


def from_translator(translator: Translator, options: SearchOptions | None = None) -> Translate:
    """Return a ``Translate`` that searches with a model; samples have no required phrases.

    Args:
        options: that ``Translator.check_options`` returned; None = those of the recipe.
    """
    options = options or translator.check_options({})
    codec, target_codec = translator.codec, translator.codec.for_tag(options.target_tag)

    def result(line: str, best: Translation, align: bool) -> Translated:
        links = None
        if align:
            sources = source_words(codec, line, options.split, options.src)
            links = linked(best.alignment, sources, target_words(target_codec, best))
        return translated(best.text, best.short, best.finished, links)

    def translate(
        lines: Sequence[str], require: Phrases, align: bool
    ) -> Sequence[Translated] | None:
        if require is not None and options.sample:
            return None
        checked = options.model_copy(update={"align": align})
        results = translator.stream(lines, require=require, checked=checked)
        return [result(line, best[0], align) for line, best in zip(lines, results, strict=True)]

    return translate
