"""Long lines in parts: cut at ends of sentences, else between words, else inside a word."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

SENTENCE, WORD, INSIDE = range(3)  # what a cut separates, the best first
# brackets and quotes that may follow the end of a sentence, also as Moses escapes them
_CLOSING = r"(?:[\"'\u201d\u2019»\u203a)\]]|&quot;|&apos;|&#93;)"
# of Arabic, Urdu, Hindi, Amharic and Burmese too, before a space; of Chinese and Japanese anywhere
_SENTENCE_END = re.compile(
    rf"[.!?…\u061f\u06d4\u0964\u0965\u1362\u104b](?: ?{_CLOSING})*(?= |$)"
    r"|[\u3002\uff01\uff1f\uff61](?: ?[\u3009\u300b\u300d\u300f\u3011\u201d\u2019\uff09])*"
)


def part_ends(surfaces: Sequence[str], longest: int) -> list[int]:
    """Return where the parts of a line end, the last at its end.

    Args:
        surfaces: what each piece adds to tokenized text.
        longest: pieces of a part, at most.
    """
    count, ends, kinds = len(surfaces), [], None
    start = 0
    while count - start > longest:
        kinds = _kinds(surfaces) if kinds is None else kinds
        left = count - start
        size = left / -(-left // longest)  # of equal parts
        # the best kind of cut that leaves no part of less than half the size
        cuts = range(start + max(1, int(size / 2)), start + longest + 1)
        start = min(cuts, key=lambda cut: (kinds[cut - 1], abs(cut - start - size)))
        ends.append(start)
    return [*ends, count] if count else []


def _kinds(surfaces: Sequence[str]) -> list[int]:
    """Return what a cut after each piece separates."""
    sentence_ends = {match.end() for match in _SENTENCE_END.finditer("".join(surfaces))}
    offsets = itertools.accumulate(map(len, surfaces))
    kinds = []
    for one, after, offset in zip(surfaces, [*surfaces[1:], " "], offsets, strict=True):
        if offset - len(one) + len(one.rstrip(" ")) in sentence_ends and one.strip(" "):
            kinds.append(SENTENCE)
        else:
            kinds.append(WORD if one.endswith(" ") or after.startswith(" ") else INSIDE)
    return kinds
