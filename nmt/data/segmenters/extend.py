"""Learn new pieces for a segmentation: byte-pair encoding that continues from its pieces.

A symbol is a piece as the merges of a segmenter write it.
"""

from __future__ import annotations

import heapq
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

Word: TypeAlias = tuple[str, ...]  # its symbols
MANY_PIECES = 4  # a word of at least so many pieces is one that the segmentation does not know
MIN_COUNT = 2  # how often a new pair of symbols must occur


class NewSymbols(NamedTuple):
    """The result of ``learn_symbols``.

    Attributes:
        parts: new symbol -> the symbols without these that it replaces; an unknown symbol: itself.
        counts: how often each new symbol occurred.
        merges: pairs of symbols to merge, in order.
    """

    parts: dict[str, Word]
    counts: dict[str, int]
    merges: list[tuple[str, str]]


def learn_symbols(
    words: Mapping[Word, int],
    known: Collection[str],
    taken: Collection[str],
    plain: Callable[[str], str],
    limit: int,
) -> NewSymbols:
    """Return the symbols that a text needs most: unknown ones, then merges (Sennrich et al. 2016).

    Merges join letters of words with unknown symbols, or with MANY_PIECES of known ones, so that
    text that the segmentation knows well keeps its pieces. They never give a symbol that the
    segmentation has: it may merge that with others, and the result may have no type.

    Args:
        words: of the text, as they are segmented now, with their counts.
        known: symbols that have a type in the vocabulary.
        taken: symbols that the segmentation has.
        plain: returns the text of a symbol.
        limit: maximum number of new symbols.
    """
    unknown: Counter[str] = Counter()
    for word, count in words.items():
        for symbol in word:
            if symbol not in known and not any(c.isspace() or c == "\ufffd" for c in symbol):
                unknown[symbol] += count
    chosen = sorted(unknown.items(), key=lambda item: (-item[1], item[0]))[:limit]
    new = NewSymbols({symbol: (symbol,) for symbol, _ in chosen}, dict(chosen), [])
    runs: Counter[Word] = Counter()
    for word, count in words.items():
        for run in _letter_runs(word, known, new.parts, plain):
            runs[run] += count
    _merge(runs, {*known, *taken}, new, limit)
    return new


def _letter_runs(
    word: Word, known: Collection[str], new: Collection[str], plain: Callable[[str], str]
) -> list[Word]:
    """Return the parts of a word to learn merges from: symbols with a type, of letters only."""
    runs: list[list[str]] = [[]]
    for symbol in word:
        letters = all(unicodedata.category(c)[0] in "LM" for c in plain(symbol))
        if letters and (symbol in known or symbol in new):
            runs[-1].append(symbol)
        else:
            runs.append([])
    return [
        tuple(run)
        for run in runs
        if len(run) >= MANY_PIECES or (len(run) > 1 and any(symbol in new for symbol in run))
    ]


def _merge(runs: Mapping[Word, int], taken: Collection[str], new: NewSymbols, limit: int) -> None:
    """Merge the most frequent pair until there are ``limit`` new symbols, ties in order of text."""
    sequences, counts = [list(run) for run in runs], list(runs.values())
    pairs: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for number, sequence in enumerate(sequences):
        for pair in pairwise(sequence):
            pairs[pair] += counts[number]
            places[pair].add(number)
    queue = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(queue)
    while queue:
        count, pair = heapq.heappop(queue)
        if -count != pairs[pair]:
            continue  # it was counted again later
        if -count < MIN_COUNT:
            return
        symbol = "".join(pair)
        if symbol in taken:
            continue
        if symbol not in new.parts:
            if len(new.parts) >= limit:
                return
            left, right = (new.parts.get(part, (part,)) for part in pair)
            new.parts[symbol], new.counts[symbol] = left + right, -count
        new.merges.append(pair)
        changed: set[tuple[str, str]] = set()
        for number in places.pop(pair):
            before = sequences[number]
            after = sequences[number] = _merged(before, pair)
            for old in pairwise(before):
                pairs[old] -= counts[number]
            for now in pairwise(after):
                pairs[now] += counts[number]
                places[now].add(number)
            changed.update(pairwise(before), pairwise(after))
        del pairs[pair]
        for other in changed - {pair}:
            heapq.heappush(queue, (-pairs[other], other))


def _merged(sequence: list[str], pair: tuple[str, str]) -> list[str]:
    """Return symbols with each occurrence of a pair joined, from left to right."""
    joined: list[str] = []
    place = 0
    while place < len(sequence):
        if tuple(sequence[place : place + 2]) == pair:
            joined.append("".join(pair))
            place += 2
        else:
            joined.append(sequence[place])
            place += 1
    return joined
