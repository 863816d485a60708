"""Checks of lines and their translations, for the notes at the end of a command."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import regex

from nmt.cli.search_options import note
from nmt.data.lines import is_blank
from nmt.runtime.words import quantity
from nmt.text.protect import compare, has_words

if TYPE_CHECKING:
    from nmt.decoding.codec import Translation, UnknownPieces
    from nmt.decoding.options import SearchOptions
    from nmt.decoding.translator import Translator
    from nmt.runtime.progress import TerminalBar

MAX_UNKNOWN = 0.05  # share of unknown source pieces above which a note is printed
MAX_NAMED_LINES = 20  # of which a note gives the numbers
MAX_NAMED_PARTS = 5  # lines whose missing parts are in a note
# language tags of other toolkits, such as <2en>, >>ces<< and __eng_Latn__
_TAG = regex.compile(
    r"<(?:2|to-?)?([A-Za-z]{2,3}(?:[-_]\w{2,8})*)>(?!.*</\1>)|>>([\w.@-]{2,16})<<|__([A-Za-z_-]{2,12})__"
    r"|\[([A-Za-z]{2,3}(?:[-_]\w{2,8})*)\]|([a-z]{2,3}_[A-Z][A-Za-z]{1,3})(?=[\s:])"
)


def named_lines(first: Sequence[int], count: int = 0) -> str:
    """Return the first numbers of some lines as text.

    Args:
        count: of all lines; 0 = ``first`` has all.
    """
    count = count or len(first)
    shown = first[:MAX_NAMED_LINES]
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return f"{'line' if count == 1 else 'lines'} {', '.join(map(str, shown))}{more}"


class LineChecks:
    """Compares the best translation of each line with the line, while they pass through."""

    def __init__(self, translator: Translator, options: SearchOptions) -> None:
        self._codec, self._options = translator.codec, options
        self._waiting: deque[str] = deque()
        self._lines = self._tagged = self._changed = 0
        self._tag = ""
        self._parts: list[str] = []
        self._equal: list[int] = []
        self._number = 0

    def sources(self, lines: Iterable[str], finished: int) -> Iterator[str]:
        """Yield lines, the first of which are ``finished`` and have no translation."""
        self._number = finished
        for number, line in enumerate(lines):
            if number >= finished:
                self._waiting.append(line)
            yield line

    def see(self, translations: Iterable[list[Translation]]) -> Iterator[list[Translation]]:
        """Yield translations, and compare each with its line."""
        for candidates in translations:
            self._number += 1
            line = self._waiting.popleft()
            if not is_blank(line):
                self._compare(line, candidates[0].text)
            yield candidates

    def _compare(self, line: str, translation: str) -> None:
        self._lines += 1
        if tag := _TAG.match(line):
            self._tagged += 1
            self._tag = self._tag or tag[0]
            line = line[tag.end() :]
        moses = self._codec.segmenter.moses
        source = moses.detokenize_reference(line, self._codec.langs(self._options)[0])
        if problems := compare(source, translation).problems:
            self._changed += 1
            if len(self._parts) < MAX_NAMED_PARTS:
                self._parts.append(f"line {self._number} ({', '.join(problems)})")
        if source.split() == translation.split() and has_words(source):
            self._equal.append(self._number)

    def notes(self) -> list[str]:
        """Return notes on the translations."""
        notes = []
        if self._changed:
            more = f" and {self._changed - len(self._parts):,} more"
            notes.append(
                f"{self._changed:,} of {quantity(self._lines, 'translation')} without a number, "
                f"link or placeholder of the source, or with another one: {', '.join(self._parts)}"
                + more
                * (self._changed > len(self._parts))
            )
        if self._equal:
            equal = quantity(len(self._equal), "translation")
            notes.append(f"{equal} equal to the source: {named_lines(self._equal)}")
        if self._tagged and self._tagged == self._lines:
            vocab = self._codec.vocab
            options = [
                f"{flag} ({', '.join(tags[:MAX_NAMED_LINES])})"
                for flag, tags in (("--tag", vocab.tags), ("--tgt-tag", vocab.tgt_tags))
                if tags
            ]
            fix = "this model has no tags, so remove it"
            if options:
                fix = f"remove it, and set the language with {' or '.join(options)}"
            notes.append(f"{self._tag!r} at the start of every line is read as text; {fix}")
        return notes


class TermCounts:
    """Counts the terms of a glossary in the lines, while they pass through."""

    def __init__(self, translator: Translator, options: SearchOptions) -> None:
        self._glossary = translator.codec.glossary(options.glossary, options.src)
        self._terms = len({source for source, _ in options.glossary})
        self._found: Counter[str] = Counter()

    def see(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines, and count their terms."""
        for line in lines:
            self._found.update(self._glossary.find(line).keys())
            yield line

    def note(self, file: str) -> None:
        """Print how many terms of a file the input has; none may mean wrong columns or case."""
        note(
            f"{file}: {len(self._found):,} of {quantity(self._terms, 'term')} occur in the input; "
            f"{quantity(self._found.total(), 'translation')} of them required"
        )


def note_unknown(unknown: UnknownPieces) -> None:
    """Print the share of unknown source subwords, if it is large."""
    if unknown.share > MAX_UNKNOWN:
        note(
            f"{unknown.share:.1%} of the source subwords are unknown to the model, in "
            f"{unknown.lines_with_unknown:,} of {quantity(unknown.lines, 'line')}; check the "
            "language and script of the input"
        )
    if unknown.lines_all_unknown:
        lines = named_lines(unknown.first, unknown.lines_all_unknown)
        note(f"all subwords of {lines} are unknown to the model; do not rely on the translation")


def line_bar(total: int | None, finished: int, show: bool = True) -> TerminalBar:
    """Return a bar of lines, of which some were ``finished`` before."""
    from nmt.runtime.progress import TerminalBar

    # smoothing=0: long lines come first, so only the mean rate predicts the time left
    options: dict[str, Any] = {"total": total, "initial": finished, "smoothing": 0}
    return TerminalBar(show, leave=True, unit=" lines", **options)
