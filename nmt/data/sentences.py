"""Split lines into sentences, and learn how many of them a line of the training data has.

A model that was trained on one sentence a line leaves sentences out of a line of several.
nmt-export copies this file next to translate.py, so it must not import other modules of nmt.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

USUAL_SHARE = 0.8  # of the training lines have at most the usual number of sentences
_KHMER_STOPS = "\u17d4\u17d5"  # sentencex 1.0 does not know them, nor the escapes of Moses
# and it panics at some white space other than U+0020
_REPLACED = re.compile(rf"[^\S ]|[{_KHMER_STOPS}]|&(?:quot|apos|amp|lt|gt|#91|#93|#124);")
_STOP_IN_WORD = re.compile(r"[.?!…]$")
_HAS_ITS_SPACE = re.compile("[\u3001-\u303f\uff01-\uff65]$")  # marks such as 。 and ！


@dataclass(frozen=True)
class UsualLine:
    """What the lines of the training data are like.

    Attributes:
        sentences: that a source line has at most, but for the longest fifth; None = not known.
        length_ratio: pieces of a translation for each piece of its source.
    """

    sentences: int | None = None
    length_ratio: float = 1.0


def usual_sentences(counts: Mapping[int, int]) -> int | None:
    """Return the smallest number of sentences that USUAL_SHARE of the lines do not exceed.

    ``counts``: number of lines with each number of sentences; empty = not known.
    """
    ordered = sorted(counts)
    covered = itertools.accumulate(counts[number] for number in ordered)
    enough = USUAL_SHARE * sum(counts.values())
    return next((n for n, lines in zip(ordered, covered, strict=True) if lines >= enough), None)


def split_sentences(line: str, lang: str) -> list[str]:
    """Split a line after each sentence, by sentencex's rules for the language.

    The parts have the white space behind them. Joined, they are the line. sentencex uses rules of
    a related language, else of English, for languages that it does not know. Two kinds of its cuts
    are left out: after a part of one letter or none, such as ``2.`` or ``D.``, and after a stop
    inside a word, such as ``EE.UU.``.

    Args:
        line: without control characters.
        lang: the shortest code of its language.
    """
    from sentencex import segment  # here: most commands do not need it

    plain = _REPLACED.sub(_replacement, line)
    parts, start, end = [], 0, 0
    for text in segment(lang, plain):
        end += len(text)
        if _has_word(plain[start:end]) and not _STOP_IN_WORD.search(text):
            parts.append(line[start:end])
            start = end
    if _has_word(plain[start:]) or not parts:
        parts.append(line[start:])
    else:
        parts[-1] += line[start:]
    return parts


def _replacement(found: re.Match[str]) -> str:
    """Return what sentencex reads instead, with as many characters."""
    text = found[0]
    return "\u3002" if text in _KHMER_STOPS else html.unescape(text).strip().ljust(len(text))


def _has_word(text: str) -> bool:
    """Return whether a text has two letters, or one of a script without capital letters."""
    letters = list(filter(str.isalpha, text))
    return len(letters) > 1 or any(one.lower() == one.upper() for one in letters)


def join_in_parts(sentences: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> list[str]:
    """Join sentences to parts that fit, by halving the line as often as necessary.

    ``fits`` says whether several sentences may be a part; a single one always is.
    """
    if len(sentences) == 1 or fits(sentences):
        return ["".join(sentences)]
    middle = len(sentences) // 2
    return [*join_in_parts(sentences[:middle], fits), *join_in_parts(sentences[middle:], fits)]


def join_translations(translations: Sequence[str], sources: Sequence[str]) -> str:
    """Join the translations of the parts of a line, with the white space behind their sources.

    Where a source has none, as in Chinese, it is a space. Where the translation ends with a mark
    of such a script, it is nothing. Without sources, the white space is not known.
    """
    text = translations[0]
    for source, translation in zip(sources, translations[1:], strict=False):
        space = source[len(source.rstrip()) :] or " "
        text += ("" if _HAS_ITS_SPACE.search(text) else space) + translation
    return text
