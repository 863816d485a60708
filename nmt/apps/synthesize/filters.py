"""Filter synthetic pairs: a text and its translations by a model, which can be wrong.

Every function decides about one pair or one line, and names the reason to drop it.
``CorpusFilter`` applies them to a corpus in two passes: lengths and languages are compared with
those of the corpus itself.
"""

from __future__ import annotations

import html
import re
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from typing import NamedTuple, TypeAlias

import numpy as np

from nmt.config.recipe import DataConfig
from nmt.data.languages import (
    MIN_SCRIPT_SHARE,
    LanguageProfile,
    check_languages,
    script_of,
    script_share,
)
from nmt.data.near_duplicates import normalized, words_and_numbers
from nmt.data.scan import Limits, reason_to_drop

MAX_PERIOD = 16  # words of a phrase whose repetitions are counted
# Of 10,000 pairs of each of nine corpora, at most 2 have a phrase four times in a row more often
# than on the other side.
MAX_REPETITIONS = 3
LENGTH_SLACK = 10  # characters; the lengths of short lines differ more than those of sentences
TYPICAL_RATIOS = 0.2, 5.0  # real extremes: 0.3 to Chinese, 3 from Chinese
# Log-odds over 5 find 93 to 100 % of the lines of the other language in eight corpora with English,
# 83 % between Portuguese and Galician, and 41 % between Spanish and Galician. At most 0.3 % of the
# right lines are on the wrong side; in two corpora of news, where 2 % of the lines are hardly
# translated, 0.7 and 1.4 %.
MIN_LOG_ODDS = 5.0
PROFILED_LINES = 5000  # lines whose letters identify a language
# lengths at which a recipe drops training pairs by default
LIMITS = Limits(*(DataConfig.model_fields[name].default for name in ("max_len", "max_pieces")))

_SURROGATE = re.compile("[\ud800-\udfff]")
Reason: TypeAlias = str | None  # why a pair is dropped; None = it is kept


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
        max_ratio: maximum ratio of the lengths of the two sides, see ``lengths_differ``.
        max_copied: maximum share of copied words, see ``copied_share``.
    """

    max_ratio: float = 2.0
    max_copied: float = 0.5


# ---------------------------------------------------------------- one line, one pair


def copied_share(src: str, tgt: str) -> float:
    """Return the share of the words of a translation that are words of the source, 0 to 1.

    Numbers, placeholders and addresses are not counted. It is 1 if both sides are the same text.
    """
    if src == tgt:
        return 1.0
    words = Counter(normalized(html.unescape(tgt)))
    shared = words & Counter(normalized(html.unescape(src)))
    return shared.total() / max(1, words.total())


def repetitions(text: str) -> int:
    """Return how often a phrase of 1 to 16 words stands in a row: 2 for "no, no".

    It is 1 if nothing is repeated. A letter of a script without spaces counts as a word.
    """
    words = words_and_numbers(html.unescape(text))
    most = 1
    if len(set(words)) == len(words):
        return most
    for period in range(1, min(MAX_PERIOD, len(words) // 2) + 1):
        run = 0
        for word, earlier in zip(words[period:], words, strict=False):
            run = run + 1 if word == earlier else 0
            most = max(most, run // period + 1)
    return most


def lengths_differ(src: str, tgt: str, typical_ratio: float, max_ratio: float) -> bool:
    """Return whether the lengths of the two sides differ too much.

    Args:
        typical_ratio: characters of a translation for each character of its source.
        max_ratio: maximum ratio of the longer length to the shorter one, plus ten characters.
    """
    short, long = sorted((len(src) * typical_ratio, len(tgt)))
    return long > max_ratio * short + LENGTH_SLACK


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
    script = script_of(lang)
    if script is None or script_share(line, script) >= MIN_SCRIPT_SHARE:
        return None
    return f"{side} not in the script of {lang}"


# ---------------------------------------------------------------- a corpus


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


class LanguageOdds:
    """Decide which of two languages a line is in, by letter pairs.

    Args:
        profile, other: letter pairs of the two texts.
    """

    def __init__(self, profile: LanguageProfile, other: LanguageProfile) -> None:
        self._log_odds = {
            pair: log((profile.pairs[pair] + 0.5) / (profile.size + 1))
            - log((other.pairs[pair] + 0.5) / (other.size + 1))
            for pair in profile.pairs.keys() | other.pairs.keys()
        }

    def log_odds(self, line: str) -> float:
        """Return the log-odds of the first language: the sum over the line's letter pairs."""
        profile = LanguageProfile()
        profile.add(line)
        return sum(count * self._log_odds.get(pair, 0.0) for pair, count in profile.pairs.items())


class CorpusFilter:
    """Decide which pairs of a synthetic corpus are kept.

    Args:
        pairs: returns an iterator over the pairs at each call; it is called twice.
        skipped: for each pair, why its line was not translated, None if it was.
        langs: source and target language.
        name: of the corpus, for messages.

    Attributes:
        reasons: for each pair, why it is dropped; complete after ``kept``.
        typical_ratio: median of the characters of a translation for each character of its source.
        warnings: about the languages of the corpus, one sentence each.
    """

    def __init__(
        self,
        pairs: Callable[[], Iterable[Candidate]],
        skipped: Sequence[Reason],
        langs: tuple[str, str],
        thresholds: Thresholds,
        name: str,
    ) -> None:
        self._pairs, self._thresholds = pairs, thresholds
        self.reasons = list(skipped)
        profiles = LanguageProfile(), LanguageProfile()
        ratios, profiled = array("f"), 0
        for number, pair in enumerate(pairs()):
            if self.reasons[number] is None:
                reason = reason_to_reject(pair, langs[1], thresholds.max_copied)
                self.reasons[number] = sys.intern(reason) if reason else None
            if self.reasons[number] is None:
                ratios.append(len(pair.tgt) / len(pair.src))
                if profiled < PROFILED_LINES:
                    profiled += 1
                    for profile, line in zip(profiles, pair[:2], strict=True):
                        profile.add(line)
        self.typical_ratio = float(np.median(ratios)) if ratios else 1.0
        self.warnings = [*chain(*check_languages({name: profiles}, {}, {name: langs}))]
        low, high = TYPICAL_RATIOS
        if not low <= self.typical_ratio <= high:
            self.warnings.append(
                f"{name}: a typical translation has {self.typical_ratio:.2f} characters for each "
                "character of its source; read some, and check that the model is trained"
            )
        # the two languages can be told apart only if there is enough text of both
        self._odds = LanguageOdds(*profiles) if all(p.enough for p in profiles) else None

    def kept(self) -> Iterator[Candidate]:
        """Yield the pairs that are kept."""
        for number, pair in enumerate(self._pairs()):
            if self.reasons[number] is None:
                self.reasons[number] = self._reason_in_corpus(pair)
                if self.reasons[number] is None:
                    yield pair

    def dropped(self) -> dict[str, int]:
        """Return how many pairs were dropped for each reason, the most frequent first."""
        return dict(Counter(reason for reason in self.reasons if reason is not None).most_common())

    def _reason_in_corpus(self, pair: Candidate) -> Reason:
        max_ratio = self._thresholds.max_ratio
        if lengths_differ(pair.src, pair.tgt, self.typical_ratio, max_ratio):
            return f"length ratio over {max_ratio:g}"
        if self._odds is not None and self._odds.log_odds(pair.tgt) > MIN_LOG_ODDS:
            return "target in the language of the source"
        return None
