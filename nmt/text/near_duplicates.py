"""Find near-duplicates: texts that differ only in digits, case, punctuation or one word.

``NearIndex`` compares a text with all texts of an index. ``RecurringTexts`` searches a large
corpus. It consults the index only for lines that begin or end like an indexed text, so most lines
cost a few lookups.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import regex

from nmt.text.languages import WORD, WORD_OR_NUMBER
from nmt.text.letters import fold

Words: TypeAlias = tuple[str, ...]

# not compared: placeholders and addresses; digits and punctuation are not words
PLACEHOLDER = regex.compile(r"\{[^{}]*\}|%\(?\w*\)?[sd]|https?://\S+")
MIN_WORDS = 4  # shorter texts are skipped: "Battery level" and "Battery low" are different texts
_LONG = 20  # words; in longer texts, one changed word leaves over half of the trigrams
MIN_JACCARD = 0.5  # trigrams that two near-duplicates share, of those that either has
EXAMPLES = 5
# A comparison takes as long as all other checks of a line, so their number is limited: at least
# MIN_COMPARISONS, and one for every LINES_PER_COMPARISON lines. In a corpus of stock phrases the
# numbers of near-duplicates are lower bounds.
MIN_COMPARISONS = 10_000
LINES_PER_COMPARISON = 50


@functools.lru_cache(maxsize=8)  # several checks of a pair need the same lines
def normalized(text: str) -> Words:
    """Return the words in any case, without digits, placeholders and punctuation."""
    return tuple(WORD.findall(PLACEHOLDER.sub(" ", fold(text))))


def _one_word_less(words: Words) -> Iterator[Words]:
    """Yield the text and, unless it is short or long, the text without each of its words.

    Two texts that differ in one replaced, added or moved word share one of these. Long texts share
    enough trigrams.
    """
    yield words
    if MIN_WORDS <= len(words) < _LONG:
        for i in range(len(words)):
            yield words[:i] + words[i + 1 :]


def _trigrams(words: Words) -> set[Words]:
    return {words[i : i + 3] for i in range(len(words) - 2)}


class NearIndex:
    """Find the near-duplicates of a text in a list of texts.

    Two texts are near-duplicates if they are equal when normalized, if one word is replaced, added
    or moved, or if their word trigrams have a Jaccard index of at least MIN_JACCARD.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._variants: dict[Words, list[int]] = defaultdict(list)
        self._holders: dict[Words, list[int]] = defaultdict(list)
        self._sizes: list[int] = []
        for i, text in enumerate(texts):
            words = normalized(text)
            for variant in set(_one_word_less(words)):
                self._variants[variant].append(i)
            trigrams = _trigrams(words)
            self._sizes.append(len(trigrams))
            for trigram in trigrams:
                self._holders[trigram].append(i)

    def near(self, text: str) -> set[int]:
        """Return the indices in the list of the near-duplicates of ``text``."""
        words = normalized(text)
        candidates = {i for v in _one_word_less(words) for i in self._variants.get(v, ())}
        trigrams = _trigrams(words)
        common = Counter(i for t in trigrams for i in self._holders.get(t, ()))
        for i, n in common.items():
            if n >= MIN_JACCARD * (len(trigrams) + self._sizes[i] - n):
                candidates.add(i)
        return candidates


def is_short(text: str) -> bool:
    """Return whether a text is too short to identify a line, such as "Thank you."."""
    return len(WORD_OR_NUMBER.findall(fold(text))) < MIN_WORDS


@dataclass
class Recurrence:
    """How many texts of a split recur.

    Attributes:
        of: number of distinct texts that are not short.
        same: number of texts that recur unchanged.
        near: number of other texts with a near-duplicate.
        share: (same + near) / of.
        examples: the first ones, ``PLACE: LINE``, and ``~ TEXT`` for near-duplicates.
    """

    of: int
    same: int
    near: int
    share: float
    examples: list[str]


class RecurringTexts:
    """Find which distinct texts of one side of some splits recur in a corpus, line by line.

    Short texts are left out. The index is consulted for a line that begins or ends like a text: in
    a third of the median length of the texts, without the first and the last character (a capital,
    a full stop). This finds one change at any place in all but the shortest texts, but not changes
    at both ends. The size of the splits limits the memory; MIN_COMPARISONS and
    LINES_PER_COMPARISON limit the time.

    Args:
        splits: texts by the name of their split.
    """

    def __init__(self, splits: dict[str, Iterable[str]]) -> None:
        members: defaultdict[str, list[str]] = defaultdict(list)  # text -> its splits
        self._sizes: dict[str, int] = {}
        # numbers of the texts of a split that recur unchanged, and nearly
        self._same: defaultdict[str, set[int]] = defaultdict(set)
        self._near: defaultdict[str, set[int]] = defaultdict(set)
        self._examples: defaultdict[str, list[str]] = defaultdict(list)
        for name, texts in splits.items():
            distinct = {text for text in texts if not is_short(text)}
            self._sizes[name] = len(distinct)
            for text in sorted(distinct):
                members[text].append(name)
        self._texts, self._splits = list(members), list(members.values())
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        self._lines = self._compared = 0
        self._index = NearIndex(self._texts)
        size = int(median(map(len, self._texts))) // 3 if self._texts else 1
        self._begin, self._end = slice(1, 1 + size), slice(-1 - size, -1)
        long = [text for text in self._texts if len(text) > size + 1]
        self._begins = {text[self._begin] for text in long}
        self._ends = {text[self._end] for text in long}

    def add(self, line: str, place: str) -> None:
        """Compare the next line of the corpus with the texts; ``place`` is for messages."""
        self._lines += 1
        number = self._numbers.get(line)
        if number is not None:
            self._count(number, line, place, same=True)
        elif (
            self._resembles(line)
            and self._compared < MIN_COMPARISONS + self._lines // LINES_PER_COMPARISON
        ):
            self._compared += 1
            for number in self._index.near(line):
                self._count(number, line, place, same=False)

    def has(self, line: str) -> bool:
        """Return whether a line that is not short is one of the texts or a near-duplicate; no
        limit."""
        if line in self._numbers:
            return True
        return self._resembles(line) and not is_short(line) and bool(self._index.near(line))

    def _resembles(self, line: str) -> bool:
        return line[self._begin] in self._begins or line[self._end] in self._ends

    def _count(self, number: int, line: str, place: str, same: bool) -> None:
        for name in self._splits[number]:
            known = (self._same if same else self._near)[name]
            if number not in known:
                known.add(number)
                if len(self._examples[name]) < EXAMPLES:
                    other = "" if same else f" ~ {self._texts[number]}"
                    self._examples[name].append(f"{place}: {line}{other}")

    def report(self, name: str) -> Recurrence:
        """Count the texts of a split that recur."""
        size, same = self._sizes[name], len(self._same[name])
        near = len(self._near[name] - self._same[name])
        return Recurrence(size, same, near, (same + near) / max(1, size), self._examples[name])
