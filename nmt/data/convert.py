"""Read corpora in the text form of the recipe: Moses-tokenized or plain (``data.tokenized``).

The lines of an entry of the other form are converted when they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from nmt.data.bitext import Bitext, read_pairs
from nmt.data.text import Pair, read_lines
from nmt.data.tokenizer import Moses
from nmt.data.workers import in_chunks, map_chunks

Converted: TypeAlias = tuple[Pair, Pair]  # in the form of the recipe, and as in the files


class ConvertLines:
    """Convert the lines of a corpus.

    Args:
        tokenized: the form to convert to.
        langs: source and target language.
    """

    def __init__(self, tokenized: bool, langs: tuple[str, str]) -> None:
        self._tokenized, self._langs = tokenized, langs
        self._moses = Moses(tokenized=not tokenized)

    def line(self, line: str, lang: str) -> str:
        """Return a line in the other form; tokenized text has escapes such as ``&apos;``."""
        if self._tokenized:
            return " ".join(self._moses.tokenize(line, lang))
        return self._moses.detokenize(line, lang)

    def __call__(self, pairs: list[Pair]) -> list[Converted]:
        """Return the pairs of a chunk in the other form, with the originals."""
        src, tgt = self._langs
        return [((self.line(p[0], src), self.line(p[1], tgt)), p) for p in pairs]


def pairs_in_form(
    corpus: Bitext, tokenized: bool, normalized: Counter[str] | None = None
) -> Iterator[Converted]:
    """Yield the pairs of a corpus in a text form, with the originals; see ``read_pairs``.

    Worker processes convert a large corpus.

    Args:
        tokenized: the form of the first of each two pairs.
    """
    pairs = read_pairs(corpus.sides, normalized)
    if corpus.tokenized == tokenized:
        return ((pair, pair) for pair in pairs)
    work = ConvertLines(tokenized, corpus.langs)
    return chain.from_iterable(map_chunks(work, in_chunks(pairs)))


def read_in_form(path: Path, lang: str, is_tokenized: bool, tokenized: bool) -> list[str]:
    """Return the lines of a side of a dev or test set in the form that scores need.

    Args:
        lang: language of the file.
        is_tokenized: whether the file is Moses-tokenized.
        tokenized: the form to return. Text that has it already stays as it is.
    """
    if is_tokenized == tokenized:
        return list(read_lines(path, clean=False))
    convert = ConvertLines(tokenized, (lang, lang))
    return [convert.line(line, lang) for line in read_lines(path)]
