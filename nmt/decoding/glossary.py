"""Find the terms of a glossary in a line, and the forms of their translations.

A line has a term if it has its words next to each other. A word of a term without capital letters
matches in any case, one with capital letters only as it is: ``us`` matches ``US``, and ``US`` does
not match ``us``. In scripts without spaces, each letter is a word. Where terms overlap, the one of
most words counts.

A translation has one form of a term: any of the alternatives, as it is written or, as at the
beginning of a sentence, with a capital letter; in capital letters where the source has it so. A
term that a line has twice is needed once, because a good translation may say "it" the second time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import regex

from nmt.data.glossary import STAR, Term
from nmt.data.languages import WORD_OR_NUMBER
from nmt.data.text import clean_line, quantity
from nmt.data.tokenizer import Moses
from nmt.data.unicode import normalize
from nmt.errors import UserError

STEPS = 100  # of the search for terms, for each word of a line; a usual glossary needs one or two
_WORD_OR_SIGN = regex.compile(rf"{WORD_OR_NUMBER.pattern}|\S")


@dataclass
class _Node:
    """What may follow some words of a term.

    Attributes:
        next: word, or beginning of a word and ``*`` -> what follows it.
        term: the term that ends here, as the glossary writes it; "" = none.
        targets: its translations.
    """

    next: dict[str, _Node] = field(default_factory=dict)
    term: str = ""
    targets: list[str] = field(default_factory=list)


class _Match(NamedTuple):
    start: int
    end: int
    text: str
    node: _Node


class Glossary:
    """The terms of a glossary, to look up in lines.

    Args:
        terms: source term and target term; those with the same source term are alternatives.
        tokenized_as: source and target language of Moses-tokenized lines; None = plain text.
            Terms are plain text.
    """

    def __init__(self, terms: Iterable[Term], tokenized_as: tuple[str, str] | None = None) -> None:
        self._root = _Node()
        tokenizer = Moses(tokenized=False)

        def in_form(text: str, side: int) -> str:
            if tokenized_as is None:
                return text
            return " ".join(tokenizer.tokenize(text, tokenized_as[side]))

        for source, target in terms:
            node = self._root
            for written in source.split():
                keys = split_words(in_form(written.removesuffix(STAR), 0))
                if written.endswith(STAR):
                    keys[-1] += STAR
                for key in keys:
                    node = node.next.setdefault(key, _Node())
            node.term = node.term or source
            node.targets.append(in_form(target, 1))

    def find(self, line: str) -> dict[str, tuple[str, ...]]:
        """Find the terms of a line, each with the forms of which its translation has one."""
        matches = self._matches(split_words(line))
        # those of most words first; of equal ones, the leftmost and then the most specific
        matches.sort(key=lambda match: match.start - match.end)
        taken: set[int] = set()
        found: dict[str, list[str]] = {}
        for match in matches:
            places = range(match.start, match.end)
            if taken.isdisjoint(places):
                taken.update(places)
                found.setdefault(match.node.term, []).extend(_forms(match.node.targets, match.text))
        return {term: tuple(dict.fromkeys(forms)) for term, forms in found.items()}

    def _matches(self, words: Sequence[str]) -> list[_Match]:
        """Return each match, by its start; of one start, the most specific first."""
        matches = []
        steps = STEPS * (len(words) + 100)
        for start in range(len(words)):
            nodes = [(self._root, start)]
            while nodes:
                node, end = nodes.pop()
                if node.term:
                    matches.append(_Match(start, end, "".join(words[start:end]), node))
                if node.next and end < len(words):
                    keys = [key for key in _keys(words[end]) if key in node.next]
                    nodes += [(node.next[key], end + 1) for key in reversed(keys)]
                steps -= 1
                if not steps:
                    what = (
                        f"a line of {quantity(len(words), 'word')} has its terms in too many ways"
                    )
                    fix = f"write fewer terms in which several words end with {STAR}"
                    raise UserError(what, at="glossary", fix=fix)
        return matches


@functools.lru_cache(maxsize=8)
def glossary_of(terms: tuple[Term, ...], tokenized_as: tuple[str, str] | None = None) -> Glossary:
    """Make the glossary of some terms, once; see ``Glossary``."""
    return Glossary(terms, tokenized_as)


def has_form(line: str, forms: Iterable[str]) -> bool:
    """Return whether a translation has one of some forms, as complete words."""
    words = split_words(line)
    for wanted in map(split_words, forms):
        size = len(wanted)
        if any(words[start : start + size] == wanted for start in range(len(words) - size + 1)):
            return True
    return False


def split_words(text: str) -> list[str]:
    """Split a text into words and signs; in scripts without spaces, into letters."""
    return _WORD_OR_SIGN.findall(normalize(clean_line(text), "clean"))


def _keys(word: str) -> Iterator[str]:
    """Yield the words of a term that a word of a line matches, the most specific first."""
    cases = dict.fromkeys((word, word.lower()))
    yield from cases
    for size in range(len(word), 0, -1):
        for text in cases:
            yield text[:size] + STAR


def _forms(targets: Sequence[str], text: str) -> Iterator[str]:
    """Yield the forms of a term that a line has as ``text``."""
    yield from targets
    for target in targets:
        if target.split()[0].islower():
            yield target[0].upper() + target[1:]
    if text.isupper() and len(text) > 1:
        yield from (target.upper() for target in targets)
