"""Sentence pairs, and filters that count and list what they take."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

LISTED = 50  # places listed per filter in MANIFEST.json; the count is always exact


class Pair(NamedTuple):
    """Two sides of one sentence, where it came from, and what it must not be parted from.

    ``place`` is a line number or a key for reports; pairs of one ``group`` (a talk, a chapter, a
    file) land in one split; ``credit`` names the authors where the license asks for it.
    """

    src: str
    tgt: str
    place: str = ""
    group: str = ""
    credit: str = ""

    def swapped(self) -> Pair:
        """The pair in the other direction."""
        return self._replace(src=self.tgt, tgt=self.src)


@dataclass
class Drops:
    """How many pairs each filter took, and the places of the first ``LISTED`` of them."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, place: str) -> None:
        """Count one dropped pair."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        listed = self.places.setdefault(reason, [])
        if place and len(listed) < LISTED:
            listed.append(place)

    def report(self) -> dict[str, dict[str, object]]:
        """For MANIFEST.json: reason -> count and first places."""
        return {
            reason: {"count": count, "first": " ".join(self.places[reason])}
            for reason, count in self.counts.items()
        }


@dataclass(frozen=True)
class Filter:
    """A reason for dropping a pair, and the test for it."""

    reason: str
    drops: Callable[[Pair], bool]


def one_line(text: str) -> str:
    """Runs of white space (newlines too) as one space, none at the ends."""
    return " ".join(text.split())


def apply_filters(pairs: Iterable[Pair], filters: Sequence[Filter], drops: Drops) -> Iterator[Pair]:
    """The pairs that no filter takes; each lost pair is counted under the first that took it."""
    for pair in pairs:
        taker = next((f for f in filters if f.drops(pair)), None)
        if taker:
            drops.add(taker.reason, pair.place)
        else:
            yield pair


def drop_duplicates(pairs: Iterable[Pair], drops: Drops) -> Iterator[Pair]:
    """The first of each (src, tgt)."""
    seen: set[tuple[str, str]] = set()
    for pair in pairs:
        if (pair.src, pair.tgt) in seen:
            drops.add("duplicate pair", pair.place)
        else:
            seen.add((pair.src, pair.tgt))
            yield pair


def empty_side() -> Filter:
    """A side without text; the pair goes as a pair, so the sides stay aligned."""
    return Filter("empty side", lambda p: not p.src.strip() or not p.tgt.strip())


def identical_sides() -> Filter:
    """Source and target are the same text: not translated."""
    return Filter("identical sides", lambda p: p.src.strip() == p.tgt.strip())


def length(least: int, most: int) -> Filter:
    """Either side has fewer than ``least`` or more than ``most`` words."""

    def drops(pair: Pair) -> bool:
        return any(not least <= len(side.split()) <= most for side in pair[:2])

    return Filter(f"not {least} to {most} words", drops)


def length_ratio(most: float) -> Filter:
    """One side has over ``most`` times the characters of the other.

    Ten characters are allowed on top, since short labels differ by more than sentences do.
    """

    def drops(pair: Pair) -> bool:
        short, long = sorted((len(pair.src), len(pair.tgt)))
        return long > most * short + 10

    return Filter(f"length ratio over {most:g}", drops)


def wrong_script(src: str | None, tgt: str | None, share: float = 0.5) -> Filter:
    """Less than ``share`` of a side's letters are of its script (``LATIN``, ``CYRILLIC``, ...).

    Names are the first words of Unicode character names; a side may have several, with commas:
    HIRAGANA,KATAKANA,CJK. None leaves that side unchecked. A side without letters passes.
    """

    def foreign(text: str, script: str | None) -> bool:
        letters = [char for char in text if char.isalpha()]
        if script is None or not letters:
            return False
        return sum(_is_script(char, script) for char in letters) < share * len(letters)

    return Filter("wrong script", lambda p: foreign(p.src, src) or foreign(p.tgt, tgt))


def scripts() -> set[str]:
    """Names that ``wrong_script`` takes."""
    letters = (char for char in map(chr, range(0x20000)) if char.isalpha())
    return {unicodedata.name(char, "").partition(" ")[0] for char in letters} - {""}


@cache
def _is_script(char: str, script: str) -> bool:
    return unicodedata.name(char, "").startswith(tuple(script.split(",")))


def matching(reason: str, pattern: str) -> Filter:
    """Either side matches a regular expression, such as mark-up left by the source."""
    found = re.compile(pattern).search
    return Filter(reason, lambda p: bool(found(p.src) or found(p.tgt)))


def to_json(data: object) -> str:
    """JSON as written into MANIFEST.json: readable, in order, with a final newline."""
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
