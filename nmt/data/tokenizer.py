"""The tokenizer of sacremoses, faster, and with marks that stay with their letters."""

from __future__ import annotations

import functools
import re
import unicodedata

from sacremoses import MosesTokenizer


class Tokenizer(MosesTokenizer):
    """sacremoses' tokenizer, faster, and without cutting words at their diacritics.

    sacremoses makes a set of all lower-case letters for each full stop, and looks through a hundred
    thousand characters for each character of Chinese and Japanese. Combining marks are no letters
    to it: it would cut Thai, Khmer or Yoruba words, and decomposed text, at each mark, which
    nothing can undo. Here a mark stays with what it marks; otherwise the words are the same.
    """

    def __init__(self, lang: str) -> None:
        super().__init__(lang)
        self._lower, self._alpha = frozenset(self.IsLower), frozenset(self.IsAlpha)
        letters, marks = _ranges(self.IsAlnum), _ranges(_marks())
        pad = rf"([^{letters}{marks}\s\.'\`\,\-][{marks}]*)"
        self.PAD_NOT_ISALNUM = re.compile(pad), r" \1 "

    def islower(self, text: str) -> bool:
        """Whether all characters are lower-case letters."""
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        """Whether any character is a letter."""
        return not self._alpha.isdisjoint(text)


@functools.cache
def _marks() -> str:
    """Combining marks, and the joiners that words of Persian or Hindi have inside."""
    codes = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))
    return "\u200c\u200d" + "".join(
        chr(code) for code in codes if unicodedata.category(chr(code))[0] == "M"
    )


def _ranges(letters: str) -> str:
    """Letters as ranges of a regular expression."""
    ranges: list[list[int]] = []
    for code in sorted(set(map(ord, letters))):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
