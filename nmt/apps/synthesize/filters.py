"""The rules of synthetic pairs: a text and its translations by a model, which can be wrong.

``nmt.data.filters`` has the measures, and compares lengths and languages with those of the corpus.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nmt.data.filters import (
    LIMITS,
    MAX_REPETITIONS,
    MIN_LOG_ODDS,
    CorpusFilter,
    Reason,
    Rule,
    copied_share,
    foreign_share,
    why_dropped,
)
from nmt.data.languages import MIN_SCRIPT_SHARE
from nmt.data.letters import repetitions
from nmt.data.text import is_blank, length_ratio, quantity

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
    """The thresholds that nmt-synthesize has options for.

    Attributes:
        max_ratio: maximum ratio of the lengths of the two sides, see ``length_ratio``.
        max_copied: maximum share of copied words, see ``copied_share``.
    """

    max_ratio: float = 2.0
    max_copied: float = 0.5


def source_rules(lang: str) -> list[Rule]:
    """Return why a line of a monolingual text is not translated; it may have surrogates."""
    return [
        Rule("source not UTF-8", lambda pair, _: _SURROGATE.search(pair.src) is not None),
        *_rules_of_side(0, lang),
    ]


def target_rules(lang: str, thresholds: Thresholds) -> list[Rule]:
    """Return why a translation to a language is dropped."""
    return [
        Rule("target cut at the length limit", lambda pair, _: not pair.finished),
        Rule(
            "target copied from the source",
            lambda pair, _: copied_share(pair.src, pair.tgt),
            thresholds.max_copied,
        ),
        *_rules_of_side(1, lang),
        Rule("target with a repetition loop", _repetitions, MAX_REPETITIONS),
        Rule(
            f"length ratio over {thresholds.max_ratio:g}",
            lambda pair, corpus: length_ratio(pair.src, pair.tgt, corpus.typical_ratio),
            thresholds.max_ratio,
            in_corpus=True,
        ),
        Rule("target in the language of the source", _swapped, MIN_LOG_ODDS, in_corpus=True),
    ]


def _rules_of_side(side: int, lang: str) -> list[Rule]:
    name = ("source", "target")[side]
    longer = f"{name} longer than"
    return [
        Rule(f"{name} blank", lambda pair, _: is_blank(pair[side])),
        Rule(
            f"{longer} {quantity(LIMITS.words, 'word')}",
            lambda pair, _: len(pair[side].split()),
            LIMITS.words,
        ),
        Rule(
            f"{longer} {quantity(LIMITS.characters, 'character')}",
            lambda pair, _: len(pair[side]),
            LIMITS.characters,
        ),
        Rule(
            f"{name} not in the script of {lang}",
            lambda pair, _: foreign_share(pair[side], lang),
            1 - MIN_SCRIPT_SHARE,
        ),
    ]


def _repetitions(pair: Candidate, _: object) -> int:
    times = repetitions(pair.tgt)
    return times if times > MAX_REPETITIONS and times > repetitions(pair.src) else 0


def _swapped(pair: Candidate, corpus: CorpusFilter[Candidate]) -> float:
    return corpus.odds.log_odds(pair.tgt) if corpus.odds else 0.0


def reasons_to_skip(lines: Iterable[str], lang: str) -> list[Reason]:
    """Return for each line of a monolingual text why it is not translated, None if it is.

    Of equal lines, the first one is translated.
    """
    reasons: list[Reason] = []
    rules, hashes = source_rules(lang), array("q")
    for line in lines:
        reasons.append(why_dropped(Candidate(line, ""), rules))
        hashes.append(hash(line))
    repeated = np.ones(len(reasons), bool)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    pairs = zip(reasons, repeated.tolist(), strict=True)
    return [reason or ("source duplicated" if again else None) for reason, again in pairs]
