"""Segment encoded sentences at random, in functions that Numba compiles.

Random numbers are those of SplitMix64 (Steele et al. 2014). Each sentence has its own sequence,
which depends on a key and on the number of the sentence only. So the result does not depend on
which sentences are segmented in one call, or in which thread.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from nmt.runtime.compiled import compiled

MAX_SYMBOLS = 1000  # words with more keep their pieces; the time grows with the square
NONE = np.int32(2**31 - 1)  # rank of a pair that does not merge
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_1, SHIFT_2, SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
TO_UNIT, UNIT = np.uint64(11), 2.0**-53  # the upper 53 bits become a number in [0, 1)
HALF = np.uint64(32)


@njit(inline="always")
def _mix(z):
    z = (z ^ (z >> SHIFT_1)) * MIX_1
    z = (z ^ (z >> SHIFT_2)) * MIX_2
    return z ^ (z >> SHIFT_3)


@njit(inline="always")
def _key(left, right):
    return (np.int64(left) << np.int64(32)) | np.int64(right)


@njit(inline="always")
def _slot(key, slots):
    return np.int64(_mix(np.uint64(key)) >> HALF) & np.int64(len(slots) - 1)


@njit(inline="always")
def _find(table, left, right):
    """Return the index of a pair, or -1."""
    key = _key(left, right)
    slot = _slot(key, table.slots)
    while table.slots[slot] >= 0 and table.keys[table.slots[slot]] != key:
        slot = (slot + 1) & (len(table.slots) - 1)
    return table.slots[slot]


@compiled
def fill_slots(keys, slots):
    """Enter keys, which are all different, into free slots; more slots than keys are needed."""
    for i in range(len(keys)):
        slot = _slot(keys[i], slots)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = i


@njit(inline="always")
def _word(ids, first, end, words):
    """Return the end of the word at ``first`` and its symbols; 0 = a piece that is not split."""
    last, size = first, 0
    while last < end:
        piece = ids[last]
        count = words.starts[piece + 1] - words.starts[piece]
        if count == 0 or (last > first and words.begins[piece]):
            break
        size += count
        last += 1
        if words.ends[piece]:
            break
    return max(last, first + 1), size


@njit(inline="always")
def _take_word(ids, place, end, words, symbols, out, written):
    """Write the symbols of the word at ``place``, or copy a word that is not split to ``out``.

    Returns the end of the word, its number of symbols (0 = it was copied), and the new ``written``.
    """
    last, size = _word(ids, place, end, words)
    if size == 0 or size > MAX_SYMBOLS:
        for i in range(place, last):
            out[written] = ids[i]
            written += 1
        return last, 0, written
    n = 0
    for i in range(place, last):
        for j in range(words.starts[ids[i]], words.starts[ids[i] + 1]):
            symbols[n] = words.symbols[j]
            n += 1
    return last, n, written


@compiled
def merge(ids, lengths, numbers, key, words, merges, out, out_lengths):
    """Segment sentences by BPE-dropout.

    Args:
        ids: [sum of lengths] the pieces of the sentences.
        lengths: [n] int32.
        numbers: [n] int64, number of each sentence.
        words, merges: ``Words`` and ``MergeArrays``.
        out: receives the pieces; as large as the number of symbols.
        out_lengths: [n] int32, receives the number of pieces of each sentence.
    """
    symbols = np.empty(MAX_SYMBOLS, np.int32)
    ranks = np.empty(MAX_SYMBOLS, np.int32)  # of each symbol and the next one
    results = np.empty(MAX_SYMBOLS, np.int32)
    chosen = np.empty(MAX_SYMBOLS, np.bool_)  # pairs that this step does not skip
    merged = np.empty(MAX_SYMBOLS, np.bool_)  # symbols that this step made
    place = np.int64(0)
    written = np.int64(0)
    for r in range(len(lengths)):
        state = _mix(key ^ _mix(np.uint64(numbers[r])))
        begin, end = written, place + lengths[r]
        while place < end:
            place, n, written = _take_word(ids, place, end, words, symbols, out, written)
            if n == 0:
                continue
            merged[:n] = True
            while True:
                for i in range(n - 1):
                    if merged[i] or merged[i + 1]:
                        pair = _find(merges.pairs, symbols[i], symbols[i + 1])
                        ranks[i] = NONE if pair < 0 else merges.ranks[pair]
                        results[i] = 0 if pair < 0 else merges.results[pair]
                best, where = NONE, 0
                for i in range(n - 1):
                    chosen[i] = ranks[i] != NONE
                    if chosen[i] and merges.skip:
                        state += GOLDEN
                        chosen[i] = _mix(state) >= merges.skip
                    if chosen[i] and ranks[i] < best:
                        best, where = ranks[i], i
                if best == NONE:
                    break
                i, size = 0, 0
                while i < n:
                    merged[size] = (
                        i + 1 < n
                        and chosen[i]
                        and ranks[i] == best
                        and (merges.together or i == where)
                    )
                    symbols[size] = results[i] if merged[size] else symbols[i]
                    ranks[size], results[size] = ranks[i], results[i]
                    i += 2 if merged[size] else 1
                    size += 1
                n = size
            for i in range(n):
                for j in range(merges.starts[symbols[i]], merges.starts[symbols[i] + 1]):
                    out[written] = merges.ids[j]
                    written += 1
        out_lengths[r] = written - begin


@compiled
def sample(ids, lengths, numbers, key, words, unigram, out, out_lengths):
    """Segment sentences by a unigram model; see ``merge`` for the arguments.

    The probabilities of the segmentations of each rest of a word are summed from its end; then
    pieces are drawn from its beginning.
    """
    symbols = np.empty(MAX_SYMBOLS, np.int32)
    total = np.empty(MAX_SYMBOLS + 1, np.float64)  # logarithm, of the rest from each symbol on
    place = np.int64(0)
    written = np.int64(0)
    for r in range(len(lengths)):
        state = _mix(key ^ _mix(np.uint64(numbers[r])))
        begin, end = written, place + lengths[r]
        while place < end:
            place, n, written = _take_word(ids, place, end, words, symbols, out, written)
            if n == 0:
                continue
            total[n] = 0.0
            for first in range(n - 1, -1, -1):
                highest, powers = -np.inf, 0.0
                node = np.int32(0)
                for i in range(first, n):
                    node = _find(unigram.edges, node, symbols[i]) + np.int32(1)
                    if node == 0:
                        break
                    if unigram.ids[node] >= 0:
                        x = unigram.scores[node] + total[i + 1]
                        if x > highest:
                            powers = powers * np.exp(highest - x) + 1.0
                            highest = x
                        else:
                            powers += np.exp(x - highest)
                total[first] = highest + np.log(powers)
            first = 0
            while first < n:
                state += GOLDEN
                rest = np.float64(_mix(state) >> TO_UNIT) * UNIT
                node, piece, after = np.int32(0), np.int32(-1), first
                for i in range(first, n):
                    node = _find(unigram.edges, node, symbols[i]) + np.int32(1)
                    if node == 0:
                        break
                    if unigram.ids[node] >= 0:
                        piece, after = unigram.ids[node], i + 1
                        rest -= np.exp(unigram.scores[node] + total[i + 1] - total[first])
                        if rest < 0:
                            break
                out[written] = piece
                written += 1
                first = after
        out_lengths[r] = written - begin
