"""Translate the items of a document with bounded memory, and list what needs a review."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.apps.documents.lines import Lines, Phrases, Translate, Translated
from nmt.apps.documents.markup import translate_segments
from nmt.apps.documents.messages import Message, NotReadable, finish, message_of, texts_of
from nmt.apps.documents.segments import Item, Mark, Segment, Unit, plain, written

MAX_SEGMENTS, MAX_CHARACTERS = 512, 1_000_000  # that are in memory at the same time
MAX_NOTES = 10_000  # without a problem; a translation memory may have a million
MAX_PLACES = 3  # of what is left, that the summary names


@dataclass(frozen=True)
class Remark:
    """A remark on a translation, for a reviewer.

    Attributes:
        problem: why it must be looked at; empty = all protected parts and marks are in it.
        note: how it was made, if that may have made it worse.
    """

    place: str
    problem: str
    note: str
    source: str
    translation: str


@dataclass
class Report:
    """The report on a translated document.

    Attributes:
        segments: with words, so that they were to be translated.
        kept: that had a translation before, which stayed.
        in_parts: that were translated in parts.
        same: whose translation equals the source, without a problem.
        remarks: in the order of the document; all problems, and the first notes.
        others: what else happened -> how often.
        places: what is left -> its first places.
    """

    segments: int = 0
    kept: int = 0
    in_parts: int = 0
    same: int = 0
    remarks: list[Remark] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    @property
    def problems(self) -> list[Remark]:
        """The translations that need a review."""
        return [remark for remark in self.remarks if remark.problem]

    def add(self, segment: Segment) -> None:
        """Add the remark on a translation, if there is one; further notes are only counted."""
        if not segment.problem and plain(segment.result).strip() == segment.text.strip():
            self.same += 1
        if not segment.problem and not segment.note:
            return
        self.in_parts += bool(segment.note)
        if segment.problem or self.in_parts <= MAX_NOTES:
            result = plain(segment.result)
            self.remarks.append(
                Remark(segment.place, segment.problem, segment.note, segment.text, result)
            )

    def count_equal(self, segment: Segment) -> None:
        """Count a translation that equals its source."""
        if segment.translated is not None and not (segment.problem or segment.changed):
            self.count("equal to their source")

    def count(self, what: str) -> None:
        """Count an event that is not a translation."""
        self.others[what] = self.others.get(what, 0) + 1

    def leave(self, kind: str, place: str) -> None:
        """Count a visible part that is left untranslated."""
        what = f"left untranslated ({kind})"
        self.count(what)
        places = self.places.setdefault(what, [])
        if len(places) < MAX_PLACES and place not in places:
            places.append(place)

    def check(self, place: str, problem: str) -> None:
        """Add a problem that is not about a translation."""
        self.remarks.append(Remark(place, problem, "", "", ""))


@dataclass(frozen=True)
class Reading:
    """Options for reading documents.

    Attributes:
        retranslate: replace translations that are in the document already.
        encoding: of a text file without a byte-order mark; None = as it says, or UTF-8.
        keys: of JSON: patterns of the paths whose values are translated; empty = all that are text.
        skip_keys: of JSON: patterns of the paths whose values stay.
        abbreviations: of the source, as in ``split_sentences``.
    """

    retranslate: bool = False
    encoding: str | None = None
    keys: tuple[str, ...] = ()
    skip_keys: tuple[str, ...] = ()
    abbreviations: tuple[str, ...] = ()


USUAL = Reading()


class Job:
    """The translation of one document.

    Args:
        translate: translates lines; None = only read the document, to check and count it.
        progress: called with the number of segments that are translated.

    Attributes:
        in_model: whether ``translate`` runs, so that an exception is not of the document.
    """

    def __init__(
        self,
        name: str,
        src: str,
        tgt: str,
        translate: Translate | None,
        reading: Reading = USUAL,
        progress: Callable[[int], object] = lambda count: None,
    ) -> None:
        self.name, self.src, self.tgt, self.reading = name, src, tgt, reading
        self.retranslate = reading.retranslate
        self.report = Report()
        self.in_model = False
        self._lines = None if translate is None else Lines(self._noted(translate))
        self._progress = progress

    def _noted(self, translate: Translate) -> Translate:
        def noted(
            lines: Sequence[str], require: Phrases, align: bool
        ) -> Sequence[Translated] | None:
            self.in_model = True
            results = translate(lines, require, align)
            self.in_model = False
            return results

        return noted

    def translated(self, items: Iterable[Item]) -> Iterator[str]:
        """Yield the items of a document as text, with translated units."""
        for chunk in _chunks(items):
            units = [item for item in chunk if isinstance(item, Unit)]
            segments: dict[Segment, Message | None] = {}
            texts: list[Segment] = []
            for segment in (segment for unit in units for segment in unit.all_segments()):
                for token in segment.tokens:
                    if isinstance(token, Mark) and token.left:
                        self.report.leave(token.left, segment.place)
                try:
                    message = message_of(segment)
                except NotReadable:
                    self.report.leave("message of ICU", segment.place)
                    continue
                if parts := texts_of(segment, message):
                    segments[segment] = message
                    texts += parts
            self.report.segments += len(segments)
            if self._lines is not None:
                langs = self.src, self.tgt
                translate_segments(texts, self._lines, langs, self.reading.abbreviations)
                for segment, message in segments.items():
                    if message is not None:
                        finish(segment, message)
                    _check(segment)
                    self.report.add(segment)
                    self.report.count_equal(segment)
                self._progress(len(segments))
            yield from map(str, chunk)


def _check(segment: Segment) -> None:
    """Add violations of the file's constraints to the problem of a translation."""
    problems = [segment.problem] if segment.problem else []
    length = len(plain(segment.result))
    if segment.longest and length > segment.longest:
        problems.append(f"{length:,} characters, of which {segment.longest:,} are allowed")
    if segment.check and (wrong := segment.check(written(segment.result))):
        problems.append(wrong)
    segment.problem = "; ".join(problems)


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    chunk: list[Item] = []
    segments = characters = 0
    for item in items:
        chunk.append(item)
        if isinstance(item, Unit):
            inside = list(item.all_segments())
            segments += len(inside)
            characters += sum(len(segment.text) for segment in inside)
        else:
            characters += len(item)
        if segments >= MAX_SEGMENTS or characters >= MAX_CHARACTERS:
            yield chunk
            chunk, segments, characters = [], 0, 0
    yield chunk
