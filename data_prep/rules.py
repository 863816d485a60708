"""The rules of ``nmt clean``: one table of what is measured, its threshold and the sentence.

To add a rule, add a row. A pair is dropped under the first rule whose measure is over its
threshold, so rules that are slow, or compare a pair with the complete corpus, come last.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import numpy as np
import regex

from data_prep.identify import Identify
from data_prep.numbers import FEWEST, MOST_SPELLED, conflicting_digits
from data_prep.pairs import MAX_PLACES, Pair
from nmt.data.checks import BpeMarks, Escapes
from nmt.data.filters import (
    FEWEST_MARKS,
    LIMITS,
    LONGEST_ABBREVIATION,
    MAX_REPETITIONS,
    MIN_LOG_ODDS,
    CorpusFilter,
    common_words,
    copied_share,
    foreign_share,
    is_misread,
    marks_share,
)
from nmt.data.languages import MIN_SCRIPT_SHARE, UNSPACED_CHARACTER
from nmt.data.letters import repetitions
from nmt.data.near_duplicates import MIN_WORDS, RecurringTexts, normalized
from nmt.data.text import is_blank, length_ratio

SHOWN = 3  # examples of each rule
FEWEST_COPIED = 8  # letters of a copy in a script without spaces; names have fewer
SHORT_FOR = 8  # characters, of which a digit or a letter of an abbreviation may be short
LEAST_REPEATED = 32  # letters of all repetitions of a phrase; laughter and songs have fewer
_SHORT_FORM = regex.compile(rf"\d|\b\p{{Lu}}{{1,{LONGEST_ABBREVIATION}}}\b")


class HeldOut:
    """Find pairs of dev and test sets, and their texts, also nearly the same ones.

    Args:
        pairs: of these sets. A side of under four words counts only together with the other side.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        sets = [pair[:2] for pair in pairs]
        self._pairs = {tuple(map(normalized, pair)) for pair in sets}
        self._sides = [RecurringTexts({"": (pair[side] for pair in sets)}) for side in (0, 1)]

    def has(self, pair: Pair) -> bool:
        """Return whether a pair, or a side of it, is in the sets."""
        return tuple(map(normalized, pair[:2])) in self._pairs or any(
            texts.has(line) for texts, line in zip(self._sides, pair[:2], strict=True)
        )


class Repeats:
    """Find pairs that are in the corpus again. Memory: 8 bytes a pair."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._repeated: set[int] | None = None
        self._kept: set[int] = set()

    def add(self, number: int, key: object) -> None:
        """Note what identifies the pair of a number, from 0; numbers may be left out."""
        self._hashes.extend([0] * (number - len(self._hashes)))
        self._hashes.append(hash(key))

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


@dataclass
class Known:
    """What the rules know besides the pair.

    Attributes:
        langs: source and target language.
        held_out: dev and test sets that training text must not have.
        identify: returns how surely a line is in another language; None = there is no identifier.
        equal, similar: pairs that were kept already.
        corpus: what is typical of it; None in the first pass.
        number: of the pair, from 0.
    """

    langs: tuple[str, str]
    held_out: HeldOut | None
    identify: Identify | None
    equal: Repeats
    similar: Repeats
    corpus: CorpusFilter[Pair] | None = None
    number: int = 0


Measure = Callable[[Pair, Known], float]


@dataclass(frozen=True)
class Example:
    """A dropped pair, its line, and its measure."""

    line: int
    src: str
    tgt: str
    measure: float


@dataclass
class Rule:
    """A row of the table, and what it dropped.

    Attributes:
        name: for counts and options.
        sentence: what is wrong with a dropped pair; ``{}`` is the threshold.
        threshold: a pair is dropped if its measure is over it.
        measure: of a pair.
        in_corpus: the measure compares the pair with the corpus, in the second pass.
        count: of dropped pairs.
        first: their first lines.
        examples: some of them, chosen at random.
    """

    name: str
    sentence: str
    threshold: float
    measure: Measure
    in_corpus: bool = False
    count: int = field(default=0, init=False)
    first: list[str] = field(default_factory=list, init=False)
    examples: list[Example] = field(default_factory=list, init=False)
    # the same input gives the same examples
    _random: Random = field(default_factory=lambda: Random(1), init=False, repr=False)

    @property
    def text(self) -> str:
        """The sentence with the threshold."""
        return self.sentence.format(self.threshold)

    def drops(self, line: int, pair: Pair, known: Known) -> bool:
        """Return whether the rule drops the pair of a line, and count it if so."""
        measure = self.measure(pair, known)
        if not measure > self.threshold:
            return False
        self.count += 1
        if len(self.first) < MAX_PLACES:
            self.first.append(str(line))
        # each dropped pair has the same chance to become an example
        place = self.count - 1 if self.count <= SHOWN else self._random.randrange(self.count)
        if place < SHOWN:
            self.examples[place : place + 1] = [Example(line, pair.src, pair.tgt, measure)]
        return True


def _worse(measure: Callable[[str], float]) -> Measure:
    return lambda pair, _: max(measure(pair.src), measure(pair.tgt))


def _copied(pair: Pair, _: Known) -> float:
    words = set(common_words(pair.tgt))
    unspaced = all(map(UNSPACED_CHARACTER.match, words))
    if len(words) < (FEWEST_COPIED if unspaced else MIN_WORDS):
        return 0.0  # a name, a title, or a label such as "OK"
    return copied_share(pair.src, pair.tgt)


def _foreign(pair: Pair, known: Known) -> float:
    return max(map(foreign_share, pair[:2], known.langs, pair[1::-1]))


def _repetition(pair: Pair, _: Known) -> float:
    for side, other in (pair[:2], pair[1::-1]):
        times = repetitions(side, LEAST_REPEATED)
        if times > 1 and times > 2 * repetitions(other):
            return times
    return 1


def _ratio(pair: Pair, known: Known) -> float:
    typical = known.corpus.typical_ratio if known.corpus else 1
    (src, tgt), (long_src, long_tgt) = pair[:2], map(_spelled_out, pair[:2])
    candidates = (src, tgt), (long_src, tgt), (src, long_tgt)
    return min(length_ratio(*sides, typical) for sides in candidates)


def _spelled_out(line: str) -> str:
    """Return a text as long as a line with words for its digits and abbreviations."""
    return _SHORT_FORM.sub(lambda found: found[0] * SHORT_FOR, line)


def _own_words(pair: Pair) -> list[str]:
    """Return the common words of each side that the other side lacks; "" for under four of them.

    Labels and code-mixed text have names and international words, which are of no language.
    """
    sides = [common_words(line) for line in pair[:2]]
    own = [[w for w in side if w not in other] for side, other in (sides, sides[::-1])]
    return ["" if len(words) < MIN_WORDS else " ".join(words) for words in own]


def _swapped(pair: Pair, known: Known) -> float:
    if known.corpus is None or (odds := known.corpus.odds) is None:
        return 0.0
    src, tgt = map(odds.log_odds, _own_words(pair))
    return max(tgt, -src)


def _other_language(pair: Pair, known: Known) -> float:
    if known.identify is None:
        return 0.0
    words = _own_words(pair)
    return max(known.identify(text, side) if text else 0.0 for side, text in enumerate(words))


def _is_lost(line: str) -> bool:
    return "\ufffd" in line or is_misread(line)


RULES = (
    Rule(
        "blank",
        "A side has no visible character.",
        0,
        _worse(is_blank),
    ),
    Rule(
        "length",
        "A side has over {:g} words.",
        LIMITS.words,
        _worse(lambda line: len(line.split()) if len(line) > 2 * LIMITS.words else 0),
    ),
    Rule(
        "characters",
        "A side has over {:,g} characters.",
        LIMITS.characters,
        _worse(len),
    ),
    Rule(
        "lost-characters",
        "A program has read the text in a wrong encoding: a side has U+FFFD, or UTF-8 read as "
        "Latin-1, such as \u00c3\u00a9 for \u00e9.",
        0,
        _worse(_is_lost),
    ),
    Rule(
        "leftovers",
        "A side has marks of another program: @@ of BPE, or escapes of HTML such as &quot;.",
        0,
        lambda pair, _: BpeMarks.has(*pair[:2]) or Escapes.has(*pair[:2]),
    ),
    Rule(
        "punctuation",
        "Over {:.0%} of the characters of a side are punctuation or symbols, and at least "
        f"{FEWEST_MARKS} are.",
        0.5,
        _worse(marks_share),
    ),
    Rule(
        "script",
        "Over {:.0%} of the words of a side are not in the script of its language. Words of the "
        "other side and abbreviations are left out.",
        1 - MIN_SCRIPT_SHARE,
        _foreign,
    ),
    Rule(
        "copied",
        "Over {:.0%} of the words of the target are words of the source. Names (words with a "
        f"capital letter), numbers, placeholders and addresses do not count, nor do targets with "
        f"under {MIN_WORDS} other words.",
        0.5,
        _copied,
    ),
    Rule(
        "repetition",
        "A phrase stands over {:g} times in a row, and less than half as often on the other side. "
        f"Repetitions of under {LEAST_REPEATED} letters, such as laughter, do not count.",
        MAX_REPETITIONS,
        _repetition,
    ),
    Rule(
        "digits",
        "Over {:.0%} of the digits of both sides are not on the other side. Zeros, years of other "
        f"calendars, hours, and under {FEWEST} digits do not count, nor do up to {MOST_SPELLED} "
        "that may be words on the other side.",
        0.5,
        lambda pair, _: conflicting_digits(pair.src, pair.tgt),
    ),
    Rule(
        "ratio",
        "One side has over {:g} times the expected number of characters, plus ten. The median of "
        "the corpus is what is expected; digits and abbreviations may be words.",
        3,
        _ratio,
        in_corpus=True,
    ),
    Rule(
        "held-out",
        "The pair or one of its sides is in a held-out set (--held-out), or nearly.",
        0,
        lambda pair, known: known.held_out is not None and known.held_out.has(pair),
        in_corpus=True,
    ),
    Rule(
        "duplicate",
        "The same pair stands in an earlier line.",
        0,
        lambda _, known: known.equal.is_repeated(known.number),
        in_corpus=True,
    ),
    Rule(
        "near-duplicate",
        "An earlier pair has the same words, and differs in digits, case, punctuation or "
        "placeholders.",
        0,
        lambda _, known: known.similar.is_repeated(known.number),
        in_corpus=True,
    ),
    Rule(
        "swapped",
        "The letter pairs of a side are those of the other language: the log-odds are over {:g}. "
        "Names and words of both sides are left out, and sides with under four other words.",
        MIN_LOG_ODDS,
        _swapped,
        in_corpus=True,
    ),
    Rule(
        "language",
        "The language identifier is sure that a side is in another language: it gives this one a "
        "probability of over {:g}. Names and words of both sides are left out, and sides with "
        "under four other words.",
        0.9,  # of 24,000 lines of six corpora none is over it, of lines of the other language 98 %
        _other_language,
        in_corpus=True,
    ),
)
