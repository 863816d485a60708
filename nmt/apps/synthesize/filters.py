"""Filter synthetic pairs: a text and its translations by a model, which can be wrong.

Every function decides about one pair or one line, and names the reason to drop it.
``nmt.data.filters`` has the measures. Lengths and languages are compared with those of the corpus.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nmt.data.filters import (
    LIMITS,
    MAX_REPETITIONS,
    MIN_LOG_ODDS,
    CorpusFilter,
    Reason,
    copied_share,
    foreign_share,
)
from nmt.data.languages import MIN_SCRIPT_SHARE
from nmt.data.letters import repetitions
from nmt.data.scan import reason_to_drop
from nmt.data.text import length_ratio

_SURROGATE = re.compile("[\ud800-\udfff]")


class Candidate(NamedTuple):
    """A line and its translation.

    Attributes:
        finished: whether the search ended the translation, not the length limit.
    """

    src: str
    tgt: str
    finished: bool = True


@dataclass(frozen=True)
class Thresholds:
    """The thresholds that nmt-translate has options for.

    Attributes:
        max_ratio: maximum ratio of the lengths of the two sides, see ``length_ratio``.
        max_copied: maximum share of copied words, see ``copied_share``.
    """

    max_ratio: float = 2.0
    max_copied: float = 0.5


def reason_to_skip(line: str, lang: str) -> Reason:
    """Return why a line of a monolingual text is not translated; it may have surrogates."""
    if _SURROGATE.search(line):
        return "source not UTF-8"
    if reason := reason_to_drop(line, "x", LIMITS):  # "x": the translation, which is not known yet
        return f"source {reason.removeprefix('source ')}"
    return _reason_of_script(line, lang, "source")


def reason_to_reject(pair: Candidate, lang: str, max_copied: float) -> Reason:
    """Return why a translation is dropped, by the pair alone.

    Args:
        lang: language of the translation.
        max_copied: maximum ``copied_share``; 1 = any.
    """
    if reason := reason_to_drop(pair.src, pair.tgt, None):
        return reason
    if not pair.finished:
        return "target cut at the length limit"
    if reason := reason_to_drop("x", pair.tgt, LIMITS):
        return f"target {reason}"
    if copied_share(pair.src, pair.tgt) > max_copied:
        return "target copied from the source"
    if (times := repetitions(pair.tgt)) > MAX_REPETITIONS and times > repetitions(pair.src):
        return "target with a repetition loop"
    return _reason_of_script(pair.tgt, lang, "target")


def _reason_of_script(line: str, lang: str, side: str) -> Reason:
    if foreign_share(line, lang) > 1 - MIN_SCRIPT_SHARE:
        return f"{side} not in the script of {lang}"
    return None


def reasons_to_skip(lines: Iterable[str], lang: str) -> list[Reason]:
    """Return for each line of a monolingual text why it is not translated, None if it is.

    Of equal lines, the first one is translated. Memory: 40 bytes a line.
    """
    reasons: list[Reason] = []
    hashes = array("q")
    for line in lines:
        reason = reason_to_skip(line, lang)
        reasons.append(sys.intern(reason) if reason else None)
        hashes.append(hash(line))  # differs between processes, which is enough here
    is_first = np.zeros(len(reasons), np.bool_)
    is_first[np.unique(np.frombuffer(hashes, np.int64), return_index=True)[1]] = True
    for number in np.flatnonzero(~is_first):
        reasons[number] = reasons[number] or "source duplicated"
    return reasons


def corpus_filter(
    pairs: Callable[[], Iterable[Candidate]],
    skipped: Sequence[Reason],
    langs: tuple[str, str],
    thresholds: Thresholds,
    name: str,
) -> CorpusFilter[Candidate]:
    """Return the filter of a synthetic corpus.

    Args:
        pairs: returns an iterator over the pairs at each call; it is called twice.
        skipped: for each pair, why its line was not translated, None if it was.
    """

    def reject(pair: Candidate) -> Reason:
        return reason_to_reject(pair, langs[1], thresholds.max_copied)

    def reject_in_corpus(corpus: CorpusFilter[Candidate], _: int, pair: Candidate) -> Reason:
        if length_ratio(pair.src, pair.tgt, corpus.typical_ratio) > thresholds.max_ratio:
            return f"length ratio over {thresholds.max_ratio:g}"
        if corpus.odds is not None and corpus.odds.log_odds(pair.tgt) > MIN_LOG_ODDS:
            return "target in the language of the source"
        return None

    return CorpusFilter(pairs, reject, reject_in_corpus, langs, name, skipped)
