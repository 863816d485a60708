"""Lines of text as sentences that a search takes, and what it finds as text again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nmt.data.segment import Segmenter
from nmt.data.text import clean_line, is_blank
from nmt.data.vocab import Vocab

if TYPE_CHECKING:
    from nmt.decoding.search import Found

LONGEST = 512  # source pieces searched at once; longer lines are translated in parts


@dataclass(frozen=True)
class Hypothesis:
    """A translation.

    Attributes:
        pieces: as the model produced them, without EOS.
        text: plain text.
        score: log_prob / length penalty, what the search ranked by.
        log_prob: natural logarithm, summed over pieces and EOS.
        finished: it ended with EOS, not at the length limit.
    """

    pieces: list[str]
    text: str
    score: float
    log_prob: float
    finished: bool


BLANK = Hypothesis([], "", 0.0, 0.0, True)


@dataclass(frozen=True)
class Sentence:
    """What is searched at once: a line, or a part of a long one.

    Attributes:
        ids: of its source pieces, at least one.
        place: number of the line from 1, and of the part from 0: what samples are drawn by.
    """

    ids: np.ndarray
    place: tuple[int, int] = (0, 0)


class Sentences:
    """Both directions between text and a search, for one pair of languages."""

    def __init__(self, segmenter: Segmenter, vocab: Vocab, src: str, tgt: str) -> None:
        self.segmenter, self.vocab, self.src, self.tgt = segmenter, vocab, src, tgt

    def of_line(self, number: int, line: str) -> list[Sentence]:
        """A line, numbered from 1, in searchable parts; a blank line has none."""
        line = clean_line(line)
        if is_blank(line):
            return []
        ids = np.array(self.vocab.ids(self.segmenter.encode(line, self.src)), dtype=np.int64)
        count = -(-len(ids) // LONGEST)
        if count > 1:
            print(
                f"note: line {number} has {len(ids)} pieces; it is translated in {count} parts",
                file=sys.stderr,
            )
        parts = np.array_split(ids, count) if count else []
        return [Sentence(part, (number, place)) for place, part in enumerate(parts)]

    def join(self, found: Sequence[list[Found]]) -> list[Hypothesis]:
        """Hypotheses of one line from those of its parts, rank by rank."""
        ranks = [[self.hypothesis(f) for f in rank] for rank in zip(*found, strict=False)]
        return [rank[0] if len(rank) == 1 else _joined(rank) for rank in ranks] or [BLANK]

    def hypothesis(self, found: Found) -> Hypothesis:
        """What was found, as text."""
        pieces = self.vocab.pieces(found.ids)
        text = self.segmenter.decode(pieces, self.tgt)
        return Hypothesis(pieces, text, found.score, found.log_prob, found.finished)


def _joined(parts: Sequence[Hypothesis]) -> Hypothesis:
    return Hypothesis(
        pieces=[piece for part in parts for piece in part.pieces],
        text=" ".join(part.text for part in parts),
        score=sum(part.score for part in parts),
        log_prob=sum(part.log_prob for part in parts),
        finished=all(part.finished for part in parts),
    )
