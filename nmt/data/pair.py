"""The record of a pair, for everything that reads, checks, filters and writes text."""

from __future__ import annotations

from typing import NamedTuple

from nmt.data.lines import Texts


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        src, tgt: the target of monolingual text is "".
        place: where it is, for reports: file and line, or a key.
        group: pairs of one group (a talk, a chapter, a file) stay in one split.
        credit: names of the authors, if the license requires them.
        number: of its line in the corpus, from 1; 0 = it is not counted.
        original: both sides as in the files, if they were converted; None = as they are.
    """

    src: str
    tgt: str
    place: str = ""
    group: str = ""
    credit: str = ""
    number: int = 0
    original: Texts | None = None

    def swapped(self) -> Pair:
        """Return the pair in the other direction."""
        return self._replace(src=self.tgt, tgt=self.src)
