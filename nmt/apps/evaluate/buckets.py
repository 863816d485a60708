"""Score parts of a test set: by length of the reference, and words by their training frequency.

The method is that of compare-mt (Neubig et al. 2019, https://aclanthology.org/N19-4007): corpus
scores of the sentences of each length, and recall, precision and F1 of the words of each frequency.
Words are sacreBLEU's tokens of the target language, with case.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU

from nmt.data.bitext import ConvertLines
from nmt.data.text import read_lines
from nmt.scoring.language import bleu_tokenizer
from nmt.scoring.metrics import score
from nmt.scoring.results import Score
from nmt.scoring.systems import Systems

# compare-mt's limits between lengths of the reference in words, and between counts of a word
LENGTHS = (10, 20, 30, 40, 50, 60)
FREQUENCIES = (1, 2, 3, 4, 5, 10, 100, 1000)


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


@dataclass(frozen=True)
class FrequencyBucket:
    """How well a system produces the words with a certain count in the training text."""

    count: Range  # occurrences in the target side of the training text; 0 = unseen
    ref_words: int  # occurrences of such words in the reference
    hyp_words: int  # occurrences in the hypotheses
    matches: int  # occurrences in both, the smaller number of each word in each line

    @property
    def recall(self) -> float | None:
        """The share of the reference's words that the hypotheses have; None if it has none."""
        return self.matches / self.ref_words if self.ref_words else None

    @property
    def precision(self) -> float | None:
        """The share of the hypotheses' words that the reference has; None if they have none."""
        return self.matches / self.hyp_words if self.hyp_words else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of recall and precision; None if neither side has such words."""
        words = self.ref_words + self.hyp_words
        return 2 * self.matches / words if words else None


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


def frequency_buckets(
    systems: Systems, name: str, counts: Mapping[str, int], limits: Sequence[int] = FREQUENCIES
) -> list[FrequencyBucket]:
    """Compare the words of a system and the first reference by training count (section 3.3).

    Args:
        counts: word -> occurrences in the training text, from ``training_counts``.
        limits: the first count of each bucket but the first, ascending.

    Returns:
        All buckets, the rarest words first.
    """
    if systems.tokenized:
        sides = systems.words[name], systems.ref_words
        hyps, refs = ([line.split() for line in lines] for lines in sides)
    else:
        sides = systems.texts[name], systems.refs
        hyps, refs = (split_words(lines, systems.tgt_lang) for lines in sides)
    ref_counts, hyp_counts, matched = ([0] * (len(limits) + 1) for _ in range(3))
    for hyp, ref in zip(map(Counter, hyps), map(Counter, refs), strict=True):
        for sums, words in ((ref_counts, ref), (hyp_counts, hyp), (matched, hyp & ref)):
            for word, number in words.items():
                sums[bisect_right(limits, counts.get(word, 0))] += number
    return [
        FrequencyBucket(*bucket)
        for bucket in zip(_ranges(limits), ref_counts, hyp_counts, matched, strict=True)
    ]


def training_counts(systems: Systems) -> Counter[str]:
    """Count the words of the target side of the training text."""
    counts: Counter[str] = Counter()
    for file in systems.training:
        lines: Iterable[str] = read_lines(file.path)
        if file.tokenized != systems.tokenized:
            convert = ConvertLines(systems.tokenized, (file.lang, file.lang))
            lines = (convert.line(line, file.lang) for line in lines)
        if systems.tokenized:
            counts.update(word for line in lines for word in line.split())
        else:
            counts += count_words(lines, systems.tgt_lang)
    return counts


def split_words(lines: Iterable[str], tgt_lang: str) -> list[list[str]]:
    """Split lines of plain text into words, as BLEU counts them."""
    tokenizer = BLEU(tokenize=bleu_tokenizer(tgt_lang)).tokenizer
    return [tokenizer(line.rstrip()).split() for line in lines]


def count_words(lines: Iterable[str], tgt_lang: str) -> Counter[str]:
    """Count the words of ``split_words``.

    sacreBLEU's tokenizer 13a never joins what a space separates, so each distinct string between
    spaces is tokenized once. A corpus of a million lines then takes seconds, not a minute.
    """
    if bleu_tokenizer(tgt_lang) != "13a":
        return Counter(word for words in split_words(lines, tgt_lang) for word in words)
    strings: Counter[str] = Counter()
    for line in lines:
        strings.update(line.split())
    counts: Counter[str] = Counter()
    for words, number in zip(split_words(strings, tgt_lang), strings.values(), strict=True):
        for word in words:
            counts[word] += number
    return counts


def _ranges(limits: Sequence[int]) -> list[Range]:
    ends = [*(limit - 1 for limit in limits), None]
    return [Range(low, high) for low, high in zip((0, *limits), ends, strict=True)]
