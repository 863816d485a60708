"""Texts that nearly recur: equal but for digits, case, marks or a word, or for half of it.

``NearIndex`` compares a text with all of an index. ``Recurring`` asks it for few of the lines of a
large corpus: those whose beginning or end is one of the index, so that most lines cost a few
look-ups.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

Words: TypeAlias = tuple[str, ...]

# What a near-duplicate may differ in besides words: placeholders, addresses, digits, punctuation.
_PLACEHOLDER = re.compile(r"\{[^{}]*\}|%\(?\w*\)?[sd]|https?://\S+")
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
# A letter of a script that puts no spaces between words counts as a word.
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W\d_]+")
_WORD_OR_NUMBER = re.compile(rf"[{_UNSPACED}]|\w+")
SHORT = 4  # words; with fewer, one changed word makes another text: "Battery level", "Battery low"
_LONG = 20  # words from which on a changed or moved one leaves over half of the trigrams
EXAMPLES = 5
# Comparisons cost as much as all else that is done to a line. So many are made at any rate, and
# one in ONE_IN lines is compared: with corpora of stock phrases the count is a lower bound.
COMPARED = 10_000
ONE_IN = 50


def normalized(text: str) -> Words:
    """Return the lowercased words without digits, placeholders and punctuation."""
    return tuple(_WORD.findall(_PLACEHOLDER.sub(" ", text.lower())))


def _one_word_less(words: Words) -> Iterator[Words]:
    """Yield the text itself and, unless short or long, the text without each one of its words.

    Two texts that differ in one replaced, added or moved word share one of these; long ones share
    trigrams enough.
    """
    yield words
    if SHORT <= len(words) < _LONG:
        for i in range(len(words)):
            yield words[:i] + words[i + 1 :]


def _trigrams(words: Words) -> set[Words]:
    return {words[i : i + 3] for i in range(len(words) - 2)}


class NearIndex:
    """Finds which of a list of texts are near-duplicates of another text.

    Near: equal when normalized; or one word replaced, added or moved; or at least ``overlap`` of
    the word trigrams of both in common (Jaccard).
    """

    def __init__(self, texts: Sequence[str], overlap: float = 0.5) -> None:
        self._overlap = overlap
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
        """Return the places in the list of the near-duplicates of ``text``."""
        words = normalized(text)
        found = {i for v in _one_word_less(words) for i in self._variants.get(v, ())}
        trigrams = _trigrams(words)
        common = Counter(i for t in trigrams for i in self._holders.get(t, ()))
        for i, n in common.items():
            if n >= self._overlap * (len(trigrams) + self._sizes[i] - n):
                found.add(i)
        return found


def is_short(text: str) -> bool:
    """Return whether a text is so short that it recurs in any corpus, such as "Thank you."."""
    return len(_WORD_OR_NUMBER.findall(text)) < SHORT


@dataclass
class Found:
    """What recurs of the texts of one split.

    Attributes:
        same, near: numbers of the texts that recur as they are, and nearly.
        examples: the first ones, with where they recur.
    """

    same: set[int] = field(default_factory=set)
    near: set[int] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)


class Recurring:
    """Finds which distinct texts of one side of some splits recur in a corpus, line by line.

    Short texts are left out (``is_short``). A line is compared with near texts when its beginning
    or its end is that of a text, but for the first and the last character (a capital, a full stop):
    a third of the median length. So one change anywhere is found in all but the shortest texts,
    changes at both ends are not. Memory is bounded by the splits, time by ``COMPARED``.
    """

    def __init__(self, splits: dict[str, Iterable[str]]) -> None:
        members: defaultdict[str, list[str]] = defaultdict(list)  # text -> its splits
        self.totals: dict[str, int] = {}
        for name, texts in splits.items():
            distinct = {text for text in texts if not is_short(text)}
            self.totals[name] = len(distinct)
            for text in sorted(distinct):
                members[text].append(name)
        self.found = {name: Found() for name in splits}
        self._texts, self._splits = list(members), list(members.values())
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        self._lines = self._compared = 0
        self._index = NearIndex(self._texts)
        size = int(median(map(len, self._texts))) // 3 if self._texts else 1
        self._begin, self._end = slice(1, 1 + size), slice(-1 - size, -1)
        long = [text for text in self._texts if len(text) > size + 1]
        self._begins = {text[self._begin] for text in long}
        self._ends = {text[self._end] for text in long}

    def look(self, line: str, place: str) -> None:
        """Compare a line of the corpus with the texts; ``place`` is where it is, for people."""
        self._lines += 1
        number = self._numbers.get(line)
        if number is not None:
            self._add(number, line, place, same=True)
        elif (
            line[self._begin] in self._begins or line[self._end] in self._ends
        ) and self._compared < COMPARED + self._lines // ONE_IN:
            self._compared += 1
            for number in self._index.near(line):
                self._add(number, line, place, same=False)

    def _add(self, number: int, line: str, place: str, same: bool) -> None:
        for name in self._splits[number]:
            found = self.found[name]
            known = found.same if same else found.near
            if number not in known:
                known.add(number)
                if len(found.examples) < EXAMPLES:
                    other = "" if same else f" ~ {self._texts[number]}"
                    found.examples.append(f"{place}: {line}{other}")

    def report(self, name: str) -> dict[str, Any]:
        """Return what recurs of a split: distinct texts of it that are not short."""
        found, total = self.found[name], self.totals[name]
        return {
            "of": total,
            "same": len(found.same),
            "near": len(found.near - found.same),
            "share": len(found.same | found.near) / max(1, total),
            "examples": found.examples,
        }
