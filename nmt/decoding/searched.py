"""Some lines of text with what a search found for them, for those who look at it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.decoding.codec import SearchInput
from nmt.decoding.forced import Pairs
from nmt.decoding.search import Hypothesis


@dataclass(frozen=True)
class Searched:
    """
    Attributes:
        lines: as they were read.
        parts: of each line, none for a blank one.
        found: of each line and part, best first.
    """

    lines: Sequence[str]
    parts: Sequence[Sequence[SearchInput]]
    found: Sequence[Sequence[list[Hypothesis]]]

    def pairs(self) -> Pairs:
        """Return the hypotheses with their sources: line by line, part by part, rank by rank."""
        each = [
            (sentence.ids, np.array(one.ids, dtype=np.int64), sentence.place[0])
            for of_line in zip(self.parts, self.found, strict=True)
            for sentence, ranks in zip(*of_line, strict=True)
            for one in ranks
        ]
        sources, targets, lines = zip(*each, strict=True) if each else ((), (), ())
        return Pairs(sources, targets, lines)
