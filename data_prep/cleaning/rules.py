"""The rules of ``nmt-clean``: one table with the measure, the threshold and the sentence of each.

To add a rule, add a row. A pair is dropped under the first rule whose measure is over its
threshold, so slow rules come last.

Loans, related languages and a second spelling are normal. So a rule that is not certain asks before
it drops many pairs of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import regex

from data_prep.cleaning.identify import Identify
from data_prep.cleaning.numbers import FEWEST, MOST_SPELLED, conflicting_digits
from nmt.data.checks import BpeMarks, Escapes
from nmt.data.filters import (
    FEWEST_MARKS,
    LONGEST_ABBREVIATION,
    MAX_REPETITIONS,
    MIN_LOG_ODDS,
    CorpusFilter,
    Repeats,
    common_words,
    copied_share,
    foreign_share,
    is_copy,
    is_misread,
    marks_share,
)
from nmt.data.lines import length_ratio
from nmt.data.pair import Pair
from nmt.data.rules import BLANK, CHARACTERS, LENGTH, Rule, duplicates, worse
from nmt.text.languages import MIN_SCRIPT_SHARE, UNSPACED_CHARACTER
from nmt.text.letters import repetitions
from nmt.text.near_duplicates import MIN_WORDS, RecurringTexts, normalized

# A typical target of 18 corpora of unrelated languages has no word of its source, and in one of
# Spanish and Guarani 22 % of its words are Spanish nouns.
COPIES_ARE_RARE = 0.1
FEWEST_COPIED = 8  # letters of a copy in a script without spaces; names have fewer
SHORT_FOR = 8  # characters, of which a digit or a letter of an abbreviation may be short
LEAST_REPEATED = 32  # letters of all repetitions of a phrase; laughter and songs have fewer
_SHORT_FORM = regex.compile(rf"\d|\b\p{{Lu}}{{1,{LONGEST_ABBREVIATION}}}\b")


class HeldOut:
    """Find pairs and sides of dev and test sets, including near-duplicates.

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


@dataclass(frozen=True)
class Known:
    """Additional data of the rules.

    Attributes:
        held_out: dev and test sets that training text must not have.
        identify: returns the probability that a line is in another language; None = no identifier.
    """

    held_out: HeldOut | None
    identify: Identify | None


def _enough(words: Sequence[str]) -> bool:
    """Return whether words are running text, and not a name, a title, or a label such as "OK"."""
    unspaced = all(map(UNSPACED_CHARACTER.match, words))
    return len(words) >= (FEWEST_COPIED if unspaced else MIN_WORDS)


def _copied(pair: Pair, corpus: CorpusFilter) -> bool:
    words = normalized(pair.tgt)
    return (
        corpus.typical_copied < COPIES_ARE_RARE
        and _enough(words)
        and 2 * len(common_words(pair.tgt)) >= len(words)  # the others are names
        and is_copy(pair.src, pair.tgt)
    )


def _partly_copied(pair: Pair, corpus: CorpusFilter) -> float:
    if corpus.typical_copied >= COPIES_ARE_RARE or not _enough([*set(common_words(pair.tgt))]):
        return 0.0
    return copied_share(pair.src, pair.tgt)


def _foreign(pair: Pair, corpus: CorpusFilter) -> float:
    return max(map(foreign_share, pair[:2], corpus.langs, pair[1::-1]))


def _repetition(pair: Pair, _: object) -> float:
    for side, other in (pair[:2], pair[1::-1]):
        times = repetitions(side, LEAST_REPEATED)
        if times > 1 and times > 2 * repetitions(other):
            return times
    return 1


def _ratio(pair: Pair, corpus: CorpusFilter) -> float:
    (src, tgt), (long_src, long_tgt) = pair[:2], map(_spelled_out, pair[:2])
    candidates = (src, tgt), (long_src, tgt), (src, long_tgt)
    return min(length_ratio(*sides, corpus.typical_ratio) for sides in candidates)


def _spelled_out(line: str) -> str:
    """Return a text of the length that a line has with its digits and abbreviations spelled out."""
    return _SHORT_FORM.sub(lambda found: found[0] * SHORT_FOR, line)


def _own_words(pair: Pair) -> list[str]:
    """Return the common words of each side that the other side lacks; "" for under four of them.

    Labels and code-mixed text have names and international words, which are of no language.
    """
    sides = [common_words(line) for line in pair[:2]]
    own = [[w for w in side if w not in other] for side, other in (sides, sides[::-1])]
    return ["" if len(words) < MIN_WORDS else " ".join(words) for words in own]


def _swapped(pair: Pair, corpus: CorpusFilter) -> float:
    if corpus.odds is None:
        return 0.0
    src, tgt = map(corpus.odds.log_odds, _own_words(pair))
    return max(tgt, -src)


def _repeated(kind: int) -> Callable[[Pair, CorpusFilter], bool]:
    return lambda _, corpus: corpus.repeats[kind].is_repeated(corpus.number)


def repeats() -> tuple[Repeats, Repeats]:
    """Return the finders of repeated pairs and of near-duplicates."""

    def similar(pair: Pair) -> object:
        words = normalized(pair.src), normalized(pair.tgt)
        return words if any(words) else pair[:2]  # numbers differ

    return Repeats(lambda pair: pair[:2]), Repeats(similar)


def _is_lost(line: str) -> bool:
    return "\ufffd" in line or is_misread(line)


def _held_out(pair: Pair, corpus: CorpusFilter) -> bool:
    known: HeldOut | None = corpus.known.held_out
    return known is not None and known.has(pair)


def _other_language(pair: Pair, corpus: CorpusFilter) -> float:
    identify: Identify | None = corpus.known.identify
    if identify is None:
        return 0.0
    words = _own_words(pair)
    return max(identify(text, side) if text else 0.0 for side, text in enumerate(words))


RULES = (
    BLANK,
    LENGTH,
    CHARACTERS,
    Rule(
        "lost-characters",
        worse(_is_lost),
        0,
        "A program has read the text in a wrong encoding: a side has U+FFFD, or UTF-8 read as "
        "Latin-1, such as \u00c3\u00a9 for \u00e9.",
    ),
    Rule(
        "leftovers",
        lambda pair, _: BpeMarks.has(*pair[:2]) or Escapes.has(*pair[:2]),
        0,
        "A side has marks of another program: @@ of BPE, or escapes of HTML such as &quot;.",
    ),
    Rule(
        "punctuation",
        worse(marks_share),
        0.5,
        "Over {:.0%} of the characters of a side are punctuation or symbols, and at least "
        f"{FEWEST_MARKS} are.",
    ),
    Rule(
        "script",
        _foreign,
        1 - MIN_SCRIPT_SHARE,
        "Over {:.0%} of the words of a side are not in the script of its language. Words of the "
        "other side and abbreviations are left out.",
    ),
    Rule(
        "repetition",
        _repetition,
        MAX_REPETITIONS,
        "A phrase stands over {:g} times in a row, and less than half as often on the other side. "
        f"Repetitions of under {LEAST_REPEATED} letters, such as laughter, do not count.",
    ),
    Rule(
        "digits",
        lambda pair, _: conflicting_digits(pair.src, pair.tgt),
        0.5,
        "Over {:.0%} of the digits of both sides are not on the other side. Zeros, years of other "
        f"calendars, hours, and under {FEWEST} digits do not count, nor do up to {MOST_SPELLED} "
        "that may be words on the other side.",
    ),
    Rule(
        "copied",
        _copied,
        0,
        "The target is the source: they differ at most in case, digits and punctuation. Texts of "
        f"under {MIN_WORDS} words and names (most words have a capital letter) do not count. Not "
        f"applied to a text where targets typically have {COPIES_ARE_RARE:.0%} of their words from "
        "the source: loans, or related languages.",
        in_corpus=True,
        sure=True,
    ),
    Rule(
        "partly-copied",
        _partly_copied,
        0.5,
        "Over {:.0%} of the words of the target are words of the source. Names (words with a "
        f"capital letter), numbers, placeholders and addresses do not count, nor do targets with "
        f"under {MIN_WORDS} other words. Not applied where copied is not.",
        in_corpus=True,
    ),
    Rule(
        "ratio",
        _ratio,
        3,
        "One side has over {:g} times the expected number of characters, plus ten. The median of "
        "the corpus is what is expected; digits and abbreviations may be words.",
        in_corpus=True,
    ),
    Rule(
        "held-out",
        _held_out,
        0,
        "The pair or one of its sides is in a held-out set (--held-out), or is a near-duplicate.",
        in_corpus=True,
        sure=True,
    ),
    replace(duplicates(), measure=_repeated(0), in_corpus=True),
    Rule(
        "near-duplicate",
        _repeated(1),
        0,
        "An earlier pair has the same words, and differs in digits, case, punctuation or "
        "placeholders.",
        in_corpus=True,
    ),
    Rule(
        "swapped",
        _swapped,
        MIN_LOG_ODDS,
        "The letter pairs of a side are those of the other language: the log-odds are over {:g}. "
        "Names and words of both sides are left out, and sides with under four other words.",
        in_corpus=True,
    ),
    Rule(
        "language",
        _other_language,
        0.9,  # of 24,000 lines of six corpora none is over it, of lines of the other language 98 %
        "The language identifier is sure that a side is in another language: it gives this one a "
        "probability of over {:g}. Names and words of both sides are left out, and sides with "
        "under four other words.",
        in_corpus=True,
    ),
)
