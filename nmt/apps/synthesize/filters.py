"""Rules for synthetic pairs, whose translations can be wrong.

``nmt.data.filters`` has the measures, and compares lengths and languages with those of the corpus.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nmt.data.filters import (
    MAX_REPETITIONS,
    MIN_LOG_ODDS,
    CorpusFilter,
    copied_share,
    foreign_share,
)
from nmt.data.lines import is_blank, length_ratio
from nmt.data.pair import Pair
from nmt.data.rules import BLANK, CHARACTERS, LENGTH, Reason, Rule, why_dropped, words
from nmt.text.languages import MIN_SCRIPT_SHARE
from nmt.text.letters import repetitions

CUT = "cut"  # the length limit ended the translation, not the search
_SURROGATE = re.compile("[\ud800-\udfff]")


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
    """Return the rules that exclude lines of monolingual text; lines may have surrogates."""
    return [
        Rule("source not UTF-8", lambda pair, _: _SURROGATE.search(pair.src) is not None),
        *_rules_of_side(0, lang),
    ]


def target_rules(lang: str, thresholds: Thresholds) -> list[Rule]:
    """Return the rules that drop translations into a language; the names are those of
    ``nmt-clean``."""
    return [
        Rule(
            "partly-copied",
            lambda pair, _: copied_share(pair.src, pair.tgt),
            thresholds.max_copied,
        ),
        *_rules_of_side(1, lang),
        Rule("repetition", _repetitions, MAX_REPETITIONS),
        Rule(
            "ratio",
            lambda pair, corpus: length_ratio(pair.src, pair.tgt, corpus.typical_ratio),
            thresholds.max_ratio,
            in_corpus=True,
        ),
        Rule("swapped", _swapped, MIN_LOG_ODDS, in_corpus=True),
    ]


def _rules_of_side(side: Literal[0, 1], lang: str) -> list[Rule]:
    """Return the rules that need one side only, such as "source blank"."""
    name = ("source", "target")[side]

    def of_side(rule: Rule, measure: Callable[[str], float]) -> Rule:
        return replace(rule, name=f"{name} {rule.name}", measure=lambda p, _: measure(p[side]))

    return [
        of_side(BLANK, is_blank),
        of_side(LENGTH, words),
        of_side(CHARACTERS, len),
        Rule(f"{name} script", lambda p, _: foreign_share(p[side], lang), 1 - MIN_SCRIPT_SHARE),
    ]


def _repetitions(pair: Pair, _: object) -> int:
    times = repetitions(pair.tgt)
    return times if times > MAX_REPETITIONS and times > repetitions(pair.src) else 0


def _swapped(pair: Pair, corpus: CorpusFilter) -> float:
    return corpus.odds.log_odds(pair.tgt) if corpus.odds else 0.0


def reasons_to_skip(lines: Iterable[str], lang: str) -> list[Reason]:
    """Return for each line of a monolingual text why it is not translated, None if it is.

    Of equal lines, the first one is translated.
    """
    reasons: list[Reason] = []
    rules, hashes = source_rules(lang), array("q")
    for line in lines:
        reasons.append(why_dropped(Pair(line, ""), rules))
        hashes.append(hash(line))
    repeated = np.ones(len(reasons), bool)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    pairs = zip(reasons, repeated.tolist(), strict=True)
    return [reason or ("source duplicate" if again else None) for reason, again in pairs]
