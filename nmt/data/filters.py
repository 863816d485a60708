"""Filter parallel text: measures of a pair, and two passes over a corpus.

A measure is a number that a threshold is compared with. ``CorpusFilter`` reads a corpus twice: what
is typical of it is known after the first pass, and pairs are compared with that in the second one.
``nmt-translate --pairs`` and ``data_prep.clean`` use both.
"""

from __future__ import annotations

import functools
import html
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import log
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import regex

from nmt.config.recipe import DataConfig
from nmt.data.checks import language_findings
from nmt.data.languages import (
    MIN_SCRIPT_SHARE,
    WORD,
    LanguageProfile,
    script_of,
    script_share,
)
from nmt.data.near_duplicates import PLACEHOLDER, Words
from nmt.data.scan import Limits

# Of 10,000 pairs of each of nine corpora, at most 2 have a phrase four times in a row more often
# than on the other side.
MAX_REPETITIONS = 3
FEWEST_MARKS = 7  # of punctuation
LONGEST_ABBREVIATION = 5  # letters
TYPICAL_RATIOS = 0.2, 5.0  # real extremes: 0.3 to Chinese, 3 from Chinese
# Log-odds over 5 find 93 to 100 % of the lines of the other language in eight corpora with English,
# 83 % between Portuguese and Galician, and 41 % between Spanish and Galician. At most 0.3 % of the
# right lines are on the wrong side; in two corpora of news, where 2 % of the lines are hardly
# translated, 0.7 and 1.4 %.
MIN_LOG_ODDS = 5.0
PROFILED_LINES = 5000  # lines whose letters identify a language
# lengths at which a recipe drops training pairs by default
LIMITS = Limits(*(DataConfig.model_fields[name].default for name in ("max_len", "max_pieces")))

_MISREAD = regex.compile("[\xc2-\xf4][^\\x00-\\x7f]")  # begins a character of UTF-8
_MARKS = regex.compile(
    r"(?V1)[[\p{P}\p{S}]--[\p{Extended_Pictographic}\p{Emoji_Modifier}\p{Regional_Indicator}]]"
)
Reason: TypeAlias = str | None  # why a pair is dropped; None = it is kept
PairT = TypeVar("PairT", bound="tuple[object, ...]")  # its first two items are source and target

# ---------------------------------------------------------------- measures


@functools.lru_cache(maxsize=4)  # several rules need the words of a pair
def common_words(text: str) -> Words:
    """Return the lowercased words without names, numbers, placeholders and addresses.

    A word with a capital letter counts as a name, unless the text has no small letter.
    """
    words = WORD.findall(PLACEHOLDER.sub(" ", html.unescape(text)))
    capitals = text.isupper()
    return tuple(w.lower() for w in words if w[0].isalpha() and (capitals or not w[0].isupper()))


def copied_share(src: str, tgt: str) -> float:
    """Return the share of the common words of a translation that are words of the source, 0 to 1.

    It is 1 if both sides are the same text.
    """
    if src == tgt:
        return 1.0
    words = Counter(common_words(tgt))
    shared = words & Counter(common_words(src))
    return shared.total() / max(1, words.total())


def is_misread(text: str) -> bool:
    """Return whether a text looks like UTF-8 that was read as Latin-1 or Windows-1252."""
    if not _MISREAD.search(text):  # most text, at once
        return False
    try:
        read = b"".join(c.encode("latin-1" if c <= "\xff" else "cp1252") for c in text).decode()
    except UnicodeError:
        return False
    # "Spa\xdf\xbb" too is UTF-8; \xc2, \xc3 and \xe2 begin nearly all signs of Western languages
    several = sum(not char.isascii() for char in read) > 1
    return several or not {"\xc2", "\xc3", "\xe2"}.isdisjoint(text)


def foreign_share(line: str, lang: str, other: str = "") -> float:
    """Return the share of the words of a line that are not in the script of its language.

    It is 0 without words, and for languages that are written in several scripts.

    Args:
        other: words of this text may be in any script, and so may abbreviations in capitals.
    """
    script = script_of(lang)
    if script is None or script_share(line, script) == 1:
        return 0.0
    words = WORD.findall(PLACEHOLDER.sub(" ", html.unescape(line)))
    same = set(WORD.findall(other.lower()))
    foreign = [
        word
        for word in words
        if script_share(word, script) < MIN_SCRIPT_SHARE
        and word.lower() not in same
        and not (other and word.isupper() and len(word) <= LONGEST_ABBREVIATION)
    ]
    return len(foreign) / max(1, len(words))


def marks_share(line: str) -> float:
    """Return the share of the visible characters that are punctuation or symbols, 0 to 1.

    It is 0 with under seven of these marks; "—¿No? —¡No!" has six. Emoji are none, and three dots
    are one.
    """
    line = line.replace("...", "…")
    marks = len(_MARKS.findall(line))
    return marks / sum(map(len, line.split())) if marks >= FEWEST_MARKS else 0.0


class LanguageOdds:
    """Decide which of two languages a line is in, by the letter pairs of a text of each."""

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


# ---------------------------------------------------------------- a corpus


class CorpusFilter(Generic[PairT]):
    """Decide which pairs of a corpus are kept.

    Args:
        pairs: returns an iterator over the pairs at each call; it is called twice.
        reject: returns why a pair is dropped, by the pair alone.
        reject_in_corpus: returns why a pair is dropped by what the first pass found; it gets this
            filter and the number of the pair, from 0.
        langs: source and target language.
        name: of the corpus, for messages.
        reasons: for each pair, why it is dropped already; empty = none is.

    Attributes:
        reasons: for each pair, why it is dropped; complete after ``kept``.
        typical_ratio: median of the characters of a translation for each character of its source.
        warnings: about the languages of the corpus, one sentence each.
        odds: of the source's language against the target's; None with too little text.
    """

    def __init__(
        self,
        pairs: Callable[[], Iterable[PairT]],
        reject: Callable[[PairT], Reason],
        reject_in_corpus: Callable[[CorpusFilter[PairT], int, PairT], Reason],
        langs: tuple[str, str],
        name: str,
        reasons: Iterable[Reason] = (),
    ) -> None:
        self._pairs, self._reject_in_corpus = pairs, reject_in_corpus
        self.reasons = list(reasons)
        known = len(self.reasons)
        profiles = LanguageProfile(), LanguageProfile()
        ratios, profiled = array("f"), 0
        for number, pair in enumerate(pairs()):
            if number >= known:
                self.reasons.append(None)
            if self.reasons[number] is None:
                reason = reject(pair)
                self.reasons[number] = sys.intern(reason) if reason else None
            if self.reasons[number] is None:
                src, tgt = str(pair[0]), str(pair[1])
                ratios.append(len(tgt) / max(1, len(src)))
                if profiled < PROFILED_LINES:
                    profiled += 1
                    for profile, line in zip(profiles, (src, tgt), strict=True):
                        profile.add(line)
        self.typical_ratio = float(np.median(ratios)) if ratios else 1.0
        found = language_findings({name: profiles}, {}, {name: langs})
        self.warnings = [finding.message() for finding in found]
        low, high = TYPICAL_RATIOS
        if not low <= self.typical_ratio <= high:
            self.warnings.append(
                f"{name}: a typical translation has {self.typical_ratio:.2f} characters for each "
                "character of its source; read some, and check that the model is trained"
            )
        # the two languages can be told apart only if there is enough text of both
        self.odds = LanguageOdds(*profiles) if all(p.enough for p in profiles) else None

    def kept(self) -> Iterator[PairT]:
        """Yield the pairs that are kept."""
        for number, pair in enumerate(self._pairs()):
            if self.reasons[number] is None:
                reason = self._reject_in_corpus(self, number, pair)
                self.reasons[number] = sys.intern(reason) if reason else None
                if reason is None:
                    yield pair

    def dropped(self) -> dict[str, int]:
        """Return how many pairs were dropped for each reason, the most frequent first."""
        return dict(Counter(reason for reason in self.reasons if reason is not None).most_common())
