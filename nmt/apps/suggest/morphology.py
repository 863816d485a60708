"""Measure how many forms the words of a language have, on the sample of a corpus."""

from __future__ import annotations

import string
from collections.abc import Iterable
from itertools import chain, islice
from random import Random

from nmt.apps.suggest.facts import CorpusFacts

WORDS = 5000  # of each side: the share of different words falls with their number
# Share of different words, and its ratio to that of the source. English, French, German, Spanish
# and Vietnamese have 0.20 to 0.42 in talks, captions, the Bible and news; Aymara, Azerbaijani,
# Cherokee, Guarani and Shipibo have 0.48 to 0.61. Turkish has 1.8 times that of English.
RICH, RICHER = 0.45, 1.6
_MARKS = (
    string.punctuation
    + "\u00ab\u00bb\u00bf\u00a1\u2013\u2014\u2018\u2019\u201c\u201d\u201e\u2026\u0964"
)


def rich_morphology(facts: CorpusFacts) -> str:
    """Return why the target has many forms of each word, as a reason for a key; "" if it has not.

    A translation then often has another form of the right word, which BLEU counts as wrong.
    """
    # parts of a corpus differ, so its beginning is not enough
    spread = Random(0).sample(facts.sample, len(facts.sample))
    sides = [
        list(islice(chain.from_iterable(map(_words, lines)), WORDS))
        for lines in zip(*spread, strict=True)
    ]
    count = min(map(len, sides))
    if not count or not (facts.src.spaced and facts.tgt.spaced):
        return ""
    src, tgt = (len(set(words[:count])) / count for words in sides)
    if (count == WORDS and tgt >= RICH) or tgt >= RICHER * src:
        return (
            f"{tgt:.0%} of {count:,} {facts.tgt.lang} words are different ({facts.src.lang}: "
            f"{src:.0%}), so BLEU counts many near hits as wrong"
        )
    return ""


def _words(line: str) -> Iterable[str]:
    return filter(None, (word.strip(_MARKS) for word in line.lower().split()))
