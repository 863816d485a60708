"""Find the terms of a glossary in a line, and the forms of their translations.

A line has a term if it has its words next to each other. A word of a term without capital letters
matches in any case, one with capital letters as it is or in capitals: ``us`` matches ``US``, and
``US`` does not match ``us``. ``nmt.text.letters`` says which letters are equal. In scripts without
spaces, each letter is a word. Where terms overlap, the one of most words counts.

A translation has one form of a term: any of the alternatives, as it is written or, as at the
beginning of a sentence, with a capital letter; in capital letters where the source has it so. A
term that a line has twice is needed once, because a good translation may say "it" the second time.
"""

from __future__ import annotations

import functools
import html
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import regex

from nmt.data.glossary import LONGEST_TERM, STAR, Term
from nmt.data.lines import clean_line
from nmt.errors import UserError
from nmt.runtime.words import quantity
from nmt.text.languages import WORD_OR_NUMBER
from nmt.text.letters import capitalized, compared, fold, fold_capitals, upper
from nmt.text.tokenizer import Moses

STEPS = 20  # of the search for terms, for each word of a line; a usual glossary needs one or two
_ESCAPE = regex.compile("&(?:quot|apos|amp|lt|gt|#91|#93|#124);")  # of Moses
_WORD_OR_SIGN = regex.compile(rf"{WORD_OR_NUMBER.pattern}|\S")
_LONGEST_BEGINNING = 3 * LONGEST_TERM  # a letter in any case has up to three letters


class Word(NamedTuple):
    """A word or sign of a text: as it is compared with case and without, and its place."""

    text: str
    folded: str
    start: int
    end: int


@dataclass
class _Node:
    """What may follow some words of a term.

    Attributes:
        next: word, or beginning of a word and ``*`` -> what follows it.
        capitals: the same in capital letters -> what follows each word that is written so, if not
            all of them are found in ``next``.
        term: the term that ends here, as the glossary writes it; "" = none.
        targets: its translations.
    """

    next: dict[str, _Node] = field(default_factory=dict)
    capitals: dict[str, list[_Node]] = field(default_factory=dict)
    term: str = ""
    targets: list[str] = field(default_factory=list)

    def add(self, word: Word, star: str, lang: str) -> _Node:
        """Return what follows a word of a term, or its beginning if ``star`` is not empty."""
        any_case = not any(map(str.isupper, word.text))
        key = (word.folded if any_case else word.text) + star
        if key not in self.next:
            self.next[key] = _Node()
            capitals = fold_capitals(word.text, lang)
            if key != capitals + star and not word.text.isupper():
                self.capitals.setdefault(capitals + star, []).append(self.next[key])
        return self.next[key]

    def after(self, word: Word) -> Iterator[_Node]:
        """Yield what follows a word of a line, the most specific first."""
        forms = dict.fromkeys((word.text, word.folded))
        sizes = range(min(max(map(len, forms)), _LONGEST_BEGINNING), 0, -1)
        beginnings = (form[:size] + STAR for size in sizes for form in forms)
        in_capitals = self.capitals if word.text.isupper() else {}
        for key in itertools.chain(forms, beginnings):
            if key in self.next:
                yield self.next[key]
            yield from in_capitals.get(key, ())


class _Match(NamedTuple):
    start: int
    end: int
    node: _Node


class Glossary:
    """The terms of a glossary, to look up in lines.

    Args:
        terms: source term and target term; those with the same source term are alternatives.
            Terms are plain text.
        langs: source and target language; "" = not known.
        tokenized: lines and forms are Moses-tokenized; otherwise plain text.
    """

    def __init__(
        self, terms: Iterable[Term], langs: tuple[str, str] = ("", ""), tokenized: bool = False
    ) -> None:
        self._root, self._langs, self._tokenized = _Node(), langs, tokenized
        self._tokenizer = Moses(tokenized=False)

        for source, target in terms:
            node = self._root
            for written in source.split():
                words = split_words(written.removesuffix(STAR), langs[0], tokenized)
                for word in words:
                    last = word is words[-1]
                    star = STAR if last and written.endswith(STAR) else ""
                    node = node.add(word, star, langs[0])
            node.term = node.term or source
            node.targets.append(target)

    def find(self, line: str) -> dict[str, tuple[str, ...]]:
        """Find the terms of a line, each with the forms of which its translation has one."""
        if self._tokenized:
            line = _ESCAPE.sub(lambda found: html.unescape(found[0]), line)
        words = split_words(line, self._langs[0], self._tokenized)
        matches = self._matches(words)
        # those of most words first; of equal ones, the leftmost and then the most specific
        matches.sort(key=lambda match: match.start - match.end)
        taken: set[int] = set()
        found: dict[str, list[str]] = {}
        for match in matches:
            places = range(match.start, match.end)
            if taken.isdisjoint(places):
                taken.update(places)
                text = line[words[match.start].start : words[match.end - 1].end]
                forms = _forms(match.node.targets, text, self._langs[1])
                found.setdefault(match.node.term, []).extend(map(self._in_form, forms))
        return {term: tuple(dict.fromkeys(forms)) for term, forms in found.items()}

    def _in_form(self, target: str) -> str:
        if not self._tokenized:
            return target
        return " ".join(self._tokenizer.tokenize(target, self._langs[1]))

    def _matches(self, words: Sequence[Word]) -> list[_Match]:
        """Return each match, by its start; of one start, the most specific first."""
        matches = []
        steps = STEPS * (len(words) + 100)
        for start in range(len(words)):
            nodes = [(self._root, start)]
            while nodes:
                node, end = nodes.pop()
                if node.term:
                    matches.append(_Match(start, end, node))
                if node.next and end < len(words):
                    following = [*node.after(words[end])]
                    nodes += [(after, end + 1) for after in reversed(following)]
                steps -= 1
                if not steps:
                    size = quantity(len(words), "word")
                    what = f"a line of {size} matches its terms in too many ways"
                    fix = f"write fewer terms in which several words end with {STAR}"
                    raise UserError(what, at="glossary", fix=fix)
        return matches


@functools.lru_cache(maxsize=8)
def glossary_of(
    terms: tuple[Term, ...], langs: tuple[str, str], tokenized: bool = False
) -> Glossary:
    """Make the glossary of some terms, once; see ``Glossary``."""
    return Glossary(terms, langs, tokenized)


def split_words(text: str, lang: str, tokenized: bool = False) -> list[Word]:
    """Split a text into words and signs; in scripts without spaces, into letters.

    In tokenized text, an apostrophe is always a sign: a tokenizer may have put spaces around it.
    """
    form, places = compared(clean_line(text), "" if tokenized else lang)
    return [
        Word(found[0], fold(found[0], lang), places[found.start()], places[found.end()])
        for found in _WORD_OR_SIGN.finditer(form)
    ]


def _forms(targets: Sequence[str], text: str, lang: str) -> Iterator[str]:
    """Yield the forms of a term that a line has as ``text``."""
    yield from targets
    for target in targets:
        if target.split()[0].islower():
            yield capitalized(target, lang)
    if text.isupper() and len(text) > 1:
        yield from (upper(target, lang) for target in targets)
