"""Filter parallel text by rules that compare a pair with its corpus, in two passes.

``CorpusFilter`` reads a corpus twice: what is typical of it is known after the first pass, and
pairs are compared with that in the second one. ``nmt-synthesize`` and ``nmt-clean`` use it.
"""

from __future__ import annotations

import functools
import html
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import regex

from nmt.data.checks import language_findings
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import Reason, Rule
from nmt.runtime.words import quantity
from nmt.text.languages import (
    MIN_SCRIPT_SHARE,
    WORD,
    LanguageProfile,
    script_of,
    script_share,
)
from nmt.text.near_duplicates import MIN_WORDS, PLACEHOLDER, Words, normalized

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

_MISREAD = regex.compile("[\xc2-\xf4][^\\x00-\\x7f]")  # begins a character of UTF-8
_MARKS = regex.compile(
    r"(?V1)[[\p{P}\p{S}]--[\p{Extended_Pictographic}\p{Emoji_Modifier}\p{Regional_Indicator}]]"
)
SHOWN = 3  # examples of each rule

# ---------------------------------------------------------------- measures


@functools.lru_cache(maxsize=4)  # several rules need the words of a pair
def common_words(text: str) -> Words:
    """Return lowercased words, without names, numbers, placeholders and addresses.

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


def is_copy(src: str, tgt: str) -> bool:
    """Return whether a translation equals its source, ignoring case, digits and punctuation."""
    return src == tgt or normalized(src) == normalized(tgt)


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


# ---------------------------------------------------------------- two passes


class Repeats:
    """Find repeated pairs. Memory: 8 bytes a pair.

    Args:
        key: returns what equal pairs have in common.
    """

    def __init__(self, key: Callable[[Pair], object]) -> None:
        self._key = key
        self._hashes = array("q")
        self._repeated: set[int] | None = None
        self._kept: set[int] = set()

    def add(self, number: int, pair: Pair) -> None:
        """Add the pair with this number, from 0; numbers may be skipped."""
        self._hashes.extend([0] * (number - len(self._hashes)))
        self._hashes.append(hash(self._key(pair)))

    def is_repeated(self, number: int) -> bool:
        """Return whether an equal pair was kept."""
        if self._repeated is None:
            values, counts = np.unique(np.frombuffer(self._hashes, np.int64), return_counts=True)
            self._repeated = set(values[counts > 1].tolist())
        return self._hashes[number] in self._kept

    def keep(self, number: int) -> None:
        """Note that a pair is kept."""
        if self._repeated is not None and self._hashes[number] in self._repeated:
            self._kept.add(self._hashes[number])


class Example(NamedTuple):
    """A dropped pair and its measure."""

    pair: Pair
    measure: float


class CorpusFilter:
    """Decide which pairs of a corpus are kept: those that no rule drops.

    Args:
        pairs: returns an iterator over the pairs at each call; it is called twice.
        rules: a pair is dropped under the first one; those with ``in_corpus`` are the last.
        langs: source and target language.
        name: of the corpus, for messages.
        skipped: for each pair, the reason if it is already dropped; empty = none is dropped.
        repeats: for rules about repeated pairs.
        known: additional data of rules.

    Attributes:
        number: of the current pair, from 0.
        reasons: for each pair, why it is dropped; complete after ``kept``.
        examples: of each rule, some dropped pairs, chosen at random.
        typical_ratio: median of the characters of a translation for each character of its source.
        typical_copied: median of ``copied_share``, without copies and targets of under four words.
        warnings: about the languages of the corpus, one sentence each.
        odds: of the source's language against the target's; None with too little text.
    """

    def __init__(
        self,
        pairs: Callable[[], Iterable[Pair]],
        rules: Sequence[Rule],
        langs: tuple[str, str],
        name: str,
        skipped: Iterable[Reason] = (),
        repeats: Sequence[Repeats] = (),
        known: Any = None,
    ) -> None:
        self._pairs, self.langs, self.repeats, self.known = pairs, langs, repeats, known
        self._in_corpus = [rule for rule in rules if rule.in_corpus]
        self.reasons = list(skipped)
        self.examples: defaultdict[str, list[Example]] = defaultdict(list)
        self._counts: Counter[str] = Counter()
        self._random = Random(1)  # the same input gives the same examples
        alone = [rule for rule in rules if not rule.in_corpus]
        profiles = LanguageProfile(), LanguageProfile()
        ratios, copied, profiled = array("f"), array("f"), 0
        for number, pair in enumerate(pairs()):
            self.number = number
            if number == len(self.reasons):
                self.reasons.append(None)
            if self.reasons[number] is None and not self.drops(pair, alone):
                src, tgt = pair[:2]
                ratios.append(len(tgt) / max(1, len(src)))
                if len(common_words(tgt)) >= MIN_WORDS:
                    share = copied_share(src, tgt)
                    if share <= 0.5 or not is_copy(src, tgt):
                        copied.append(share)
                for seen in repeats:
                    seen.add(number, pair)
                if profiled < PROFILED_LINES:
                    profiled += 1
                    for profile, line in zip(profiles, (src, tgt), strict=True):
                        profile.add(line)
        self.typical_ratio = float(np.median(ratios)) if ratios else 1.0
        self.typical_copied = float(np.median(copied)) if copied else 0.0
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

    def drops(self, pair: Pair, rules: Iterable[Rule]) -> bool:
        """Return whether a rule drops the pair of ``number``, and note it if so."""
        for rule in rules:
            if (measure := rule.measure(pair, self)) > rule.threshold:
                self.reasons[self.number] = rule.name
                self._counts[rule.name] += 1
                # each dropped pair has the same chance to become an example
                count = self._counts[rule.name]
                place = count - 1 if count <= SHOWN else self._random.randrange(count)
                if place < SHOWN:
                    example = Example(pair._replace(number=self.number + 1), measure)
                    self.examples[rule.name][place : place + 1] = [example]
                return True
        return False

    def kept(self) -> Iterator[Pair]:
        """Yield the pairs that are kept."""
        for number, (pair, reason) in enumerate(zip(self._pairs(), self.reasons, strict=False)):
            self.number = number
            if reason is None and not self.drops(pair, self._in_corpus):
                for seen in self.repeats:
                    seen.keep(number)
                yield pair

    @property
    def dropped(self) -> Drops:
        """How many pairs were dropped for each reason, and their first lines."""
        dropped = Drops()
        for line, reason in enumerate(self.reasons, 1):
            if reason is not None:
                dropped[reason].add(str(line))
        return dropped

    def counts(self) -> dict[str, int]:
        """Return how many pairs were dropped for each reason, the most frequent first."""
        return dict(Counter(filter(None, self.reasons)).most_common())

    def summary(self, sides: Iterable[Path]) -> str:
        """Return a summary for people: the pairs of these files, and what was dropped."""
        kept, total = self.reasons.count(None), len(self.reasons)
        names, width = " and ".join(map(str, sides)), len(f"{total:,}")
        rows = [f"{names}: {kept:,} of {quantity(total, 'pair')} kept ({kept / total:.1%})"]
        rows += [f"  {count:>{width},}  {reason}" for reason, count in self.counts().items()]
        return "\n".join(rows)
