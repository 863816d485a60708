"""What pieces spell, and what a phrase looks like there.

Text here is tokenized, with a space where a word begins or ends, also before the first word and at
the end. A phrase has a space on either side, so ``cat`` is not found in ``cats``; in scripts that
write no spaces it has none, and is found wherever its characters follow each other.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence

from nmt.data.segment import BYTE, Segmenter
from nmt.data.vocab import BOS, EOS, PAD, Vocab

NEVER = "\0"  # what PAD and BOS spell: no text has it
# Thai, Lao, Tibetan, Burmese, Khmer; Chinese and Japanese
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3001-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


class PieceStrings:
    """What each type of a vocabulary adds to tokenized text; the end of a sentence adds a space."""

    def __init__(self, segmenter: Segmenter, vocab: Vocab, lang: str) -> None:
        self._segmenter, self._lang = segmenter, lang
        self.text = [segmenter.surface(piece) for piece in vocab.pieces(range(len(vocab)))]
        self.text[EOS] = " "
        self.text[PAD] = self.text[BOS] = NEVER
        self._order = sorted(range(len(self.text)), key=self.text.__getitem__)
        self._sorted = [self.text[token] for token in self._order]

    def patterns(self, phrase: str) -> list[str]:
        """What a phrase looks like in tokenized text: by itself, and amid other words."""
        alone = self.spelled(self._segmenter.encode(phrase, self._lang)).strip(" ")
        amid = self.spelled(self._segmenter.encode(f"x {phrase} x", self._lang)).strip(" ")
        cores = {alone, amid[2:-2]} if amid[:2] == "x " and amid[-2:] == " x" else {alone}
        text = phrase.strip()
        return sorted(_edged(core, text[0], text[-1]) for core in cores if core)

    def of(self, symbol: int | str) -> str:
        """Return what a type adds to tokenized text, or a piece that may be no type."""
        return self.text[symbol] if isinstance(symbol, int) else self._segmenter.surface(symbol)

    def spelled(self, pieces: Sequence[str]) -> str:
        """Pieces -> tokenized text."""
        return "".join(map(self._segmenter.surface, pieces))

    def starting(self, text: str) -> list[int]:
        """Types whose text starts so."""
        first = bisect.bisect_left(self._sorted, text)
        last = first
        while last < len(self._sorted) and self._sorted[last].startswith(text):
            last += 1
        return self._order[first:last]

    def matching(self, pattern: re.Pattern[str]) -> list[int]:
        """Types in whose text a regular expression is found."""
        return [token for token, text in enumerate(self.text) if pattern.search(text)]


def _edged(core: str, first: str, last: str) -> str:
    """Return a phrase with spaces where it must begin or end a word.

    Args:
        core: as pieces spell it.
        first, last: its characters as text, for those that are spelled as bytes.
    """
    edges = (
        char if edge >= BYTE else edge
        for edge, char in zip((core[0], core[-1]), (first, last), strict=True)
    )
    left, right = ("" if _UNSPACED.match(edge) else " " for edge in edges)
    return f"{left}{core}{right}"
