"""Score the sentences of each length of the reference.

The method is that of compare-mt (Neubig et al. 2019, https://aclanthology.org/N19-4007). Words are
sacreBLEU's tokens of the target language, with case.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU

from nmt.scoring.language import bleu_tokenizer
from nmt.scoring.metrics import score
from nmt.scoring.results import Score
from nmt.scoring.systems import Systems

# compare-mt's limits between lengths of the reference in words
LENGTHS = (10, 20, 30, 40, 50, 60)


@dataclass(frozen=True)
class Range:
    """The integers from ``low`` to ``high``, both included; no upper end if ``high`` is None."""

    low: int
    high: int | None

    def __str__(self) -> str:
        if self.high is None:
            return f">={self.low:,}"
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,}-{self.high:,}"


@dataclass(frozen=True)
class LengthBucket:
    """The scores of the lines whose reference has a certain length."""

    words: Range  # of the reference
    lines: int
    scores: list[Score]  # a corpus score of these lines for each metric


def length_buckets(
    systems: Systems, name: str, metrics: Sequence[str], limits: Sequence[int] = LENGTHS
) -> list[LengthBucket]:
    """Score a system by length of the first reference (Neubig et al. 2019, section 3.2).

    Args:
        metrics: keys of METRICS that are computed on plain text.
        limits: the first length of each bucket but the first, ascending.

    Returns:
        The buckets that have lines, shortest first.
    """
    rows: dict[int, list[int]] = {}
    for row, words in enumerate(split_words(systems.refs, systems.tgt_lang)):
        rows.setdefault(bisect_right(limits, len(words)), []).append(row)
    texts, ranges = (systems.texts[name], systems.refs, *systems.other_refs), _ranges(limits)
    buckets = []
    for number in sorted(rows):
        hyps, refs, *others = ([lines[row] for row in rows[number]] for lines in texts)
        scores = score(hyps, refs, metrics, systems.tgt_lang, other_refs=others)
        buckets.append(LengthBucket(ranges[number], len(hyps), scores))
    return buckets


def split_words(lines: Iterable[str], tgt_lang: str) -> list[list[str]]:
    """Split lines of plain text into words, as BLEU counts them."""
    tokenizer = BLEU(tokenize=bleu_tokenizer(tgt_lang)).tokenizer
    return [tokenizer(line.rstrip()).split() for line in lines]


def _ranges(limits: Sequence[int]) -> list[Range]:
    ends = [*(limit - 1 for limit in limits), None]
    return [Range(low, high) for low, high in zip((0, *limits), ends, strict=True)]
