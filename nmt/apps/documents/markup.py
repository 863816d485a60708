"""Move inline markup to the words that translate the marked-up words.

The text of a segment is divided into sentences. A mark between two sentences stays between their
translations. For a mark inside a sentence, the word alignment says where it goes. Where that does
not give nested pairs, or the alignment is not known, the text between the marks of the sentence is
translated separately.
"""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.apps.documents.lines import NOT_TRANSLATED, Line, Lines, Link, Translated
from nmt.apps.documents.segments import Mark, Segment, Token, joined
from nmt.data.lines import clean_line
from nmt.text.languages import UNSPACED_CHARACTER, base_language, sentence_space
from nmt.text.protect import Span, spans
from nmt.text.sentences import space_between, split_sentences

LONGEST_WORD = 1000  # characters; the time to place marks grows with those inside a word
MAX_DEPTH = 100  # of pairs in each other; those inside are single marks
IN_PARTS = "translated in parts, to keep the markup"


def translate_segments(
    segments: Sequence[Segment],
    lines: Lines,
    langs: tuple[str, str],
    abbreviations: Collection[str] = (),
) -> None:
    """Translate segments, and set their translations, problems and notes.

    Args:
        langs: source and target language.
        abbreviations: of the source, for the division into sentences.
    """
    src, tgt = langs
    split = functools.partial(
        split_sentences, lang=base_language(src), abbreviations=frozenset(abbreviations)
    )
    marked = [_Marked(segment, split, sentence_space(tgt)) for segment in segments]
    _translate_parts(marked, lines)
    unplaced = [each for each in marked if not each.place()]
    for each in unplaced:
        each.divide_at_marks()
    _translate_parts(unplaced, lines)
    for each in unplaced:
        if not each.place():
            each.segment.problem = f"{NOT_TRANSLATED}: its markup has no place in the translation"


def _translate_parts(marked: Sequence[_Marked], lines: Lines) -> None:
    parts = [part for each in marked for part in each.parts]
    results = lines.translate([part.line for part in parts])
    for part, result in zip(parts, results, strict=True):
        part.translated = result


@dataclass
class _Part:
    """A sentence or a part of one, without white space at its ends.

    Attributes:
        start, end: position in the text of the segment.
        line: its text; aligned if a mark is inside it, not at an end.
        continues: whether the part before it is of the same sentence.
    """

    start: int
    end: int
    line: Line
    continues: bool = False
    translated: Translated = field(init=False)


@dataclass(eq=False)
class _Node:
    """A pair of marks with what is inside, or a mark that stands alone.

    Attributes:
        start, end: position in the text; equal for a single mark without text.
    """

    mark: Mark
    start: int
    end: int
    close: Mark | None = None
    children: list[_Node] = field(default_factory=list)


class _Crossing(Exception):
    """A pair of marks has no place of its own in the translation."""


class _Marked:
    """A segment whose marks are apart from its text."""

    def __init__(self, segment: Segment, split: Callable[[str], Sequence[str]], space: str) -> None:
        self.segment, self.space = segment, space
        self.text = segment.text
        self.offsets, self.nodes, self.kept = _tree(segment.tokens)
        texts = [*segment.keep, *(text for _, text in self.kept)]
        sentences = _sentences(self.text, split, spans(self.text, texts, segment.flags))
        self.parts = [self._part(*bounds) for bounds in sentences]

    def _part(self, start: int, end: int) -> _Part:
        after = bisect_right(self.offsets, start)
        align = after < len(self.offsets) and self.offsets[after] < end
        first, last = (
            bisect_left(self.kept, place, key=lambda one: one[0]) for place in (start, end)
        )
        keep = [text for place, text in self.kept[first:last] if place + len(text) <= end]
        line = clean_line(self.text[start:end])
        keep += [text for text in self.segment.keep if text in line]
        kept = tuple(dict.fromkeys(keep))
        return _Part(start, end, Line(line, kept, self.segment.flags, align))

    def divide_at_marks(self) -> None:
        """Replace parts with marks inside by the parts between the marks, not translated yet."""
        divided: list[_Part] = []
        for part in self.parts:
            if part.line.align:
                inside = (offset for offset in self.offsets if part.start < offset < part.end)
                cuts = [part.start, *dict.fromkeys(inside), part.end]
                for start, end in itertools.pairwise(cuts):
                    for bounds in _trimmed(self.text, start, end):
                        piece = self._part(*bounds)
                        piece.continues = start > part.start
                        divided.append(piece)
            else:
                divided.append(part)
        self.parts = divided
        self.segment.note = IN_PARTS

    def place(self) -> bool:
        """Write the translation of the segment; return False if a mark has no place in it."""
        segment, results = self.segment, [part.translated for part in self.parts]
        try:
            places = _Places(self.text, self.parts, self.space)
            segment.translated = joined(_emit(self.nodes, places, 0, len(places.text)))
        except _Crossing:
            return False
        problems = dict.fromkeys(result.problem for result in results if result.problem)
        notes = dict.fromkeys(result.note for result in results if result.note)
        segment.problem = "; ".join(problems)
        segment.note = "; ".join(filter(None, [segment.note, *notes]))
        return True


def _tree(tokens: Sequence[Token]) -> tuple[list[int], list[_Node], list[tuple[int, str]]]:
    """Return the offsets of marks without text, the marks as a tree, and the texts of the others.

    A pair around nothing, such as a bookmark, and a mark without its partner are single marks.
    """
    offsets: list[int] = []
    kept: list[tuple[int, str]] = []
    offset, stack = 0, [_Node(Mark("open", ()), 0, 0)]
    for token in tokens:
        if isinstance(token, str):
            offset += len(token)
            continue
        node, top = _Node(token, offset, offset + len(token.text)), stack[-1]
        if token.text:
            kept.append((offset, token.text))
            offset = node.end
        else:
            offsets.append(offset)
        if token.kind == "close" and len(stack) > 1 and top.mark.name == token.name:
            stack.pop()
            top.end, top.close = offset, token
            continue
        top.children.append(node)
        if token.kind == "open" and len(stack) < MAX_DEPTH:
            stack.append(node)
    for node in stack[1:]:  # a pair that does not end here, the last one of those before it
        stack[0].children += node.children
        node.children = []
    return offsets, stack[0].children, kept


def _sentences(
    text: str, split: Callable[[str], Sequence[str]], protected: Sequence[Span]
) -> Iterator[tuple[int, int]]:
    """Yield where each sentence is, without white space at its ends; a line ends a sentence."""
    inside = {place for span in protected for place in range(span.start + 1, span.end)}
    for line in re.finditer(r"[^\n\r\t\v\f\x85\u2028\u2029]+", text):
        start = end = line.start()
        for sentence in split(clean_line(line[0])):
            end += len(sentence)
            if end < line.end() and end in inside:
                continue  # the mark of a URL is not the end of a sentence
            yield from _trimmed(text, start, end)
            start = end
        yield from _trimmed(text, start, line.end())


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of a part without white space at its ends, unless it is blank."""
    part = text[start:end]
    if part.strip():
        yield start + len(part) - len(part.lstrip()), start + len(part.rstrip())


def _inner_gap(gap: str, source: str, translation: str, space: str) -> str:
    """Return the white space between the translations of two parts of a sentence.

    Args:
        gap: in the source.
        source, translation: the two characters around it.
        space: what stands between two sentences in the target language.
    """
    if space and not gap and translation.isalnum() and UNSPACED_CHARACTER.search(source):
        return space
    if not space and gap.isspace() and UNSPACED_CHARACTER.search(translation):
        return space_between(gap, space)
    return gap


class _Places:
    """Where positions of a text are in its translation.

    Attributes:
        text: its translation: that of each part, and the white space between them.

    Args:
        space: what stands between two sentences in the target language.

    Raises:
        _Crossing: a mark is inside a part whose alignment is not known.
    """

    def __init__(self, source: str, parts: Sequence[_Part], space: str) -> None:
        self.source, self.text, end = source, "", 0
        # white space: start and end in the source, start and end in the translation
        self._fixed: list[tuple[int, int, int, int]] = []
        self._links: list[Link] = []
        is_same = all(source[p.start : p.end] == p.translated.text for p in parts)
        for part in parts:
            text, gap = part.translated.text, source[end : part.start]
            if end and not is_same:
                around = source[end - 1] + source[part.start], self.text[-1:] + text[:1]
                gap = (
                    _inner_gap(gap, *around, space) if part.continues else space_between(gap, space)
                )
            self._gap(end, part.start, gap)
            shift = len(self.text)
            links: Sequence[Link] | None = [Link(0, part.end - part.start, 0, len(text))]
            if part.line.align:  # a mark is inside
                links = part.translated.links
                if any(end - start > LONGEST_WORD for start, end, *_ in links or ()):
                    raise _Crossing
            if links is None:
                raise _Crossing
            self._links += [
                Link(a + part.start, b + part.start, c + shift, d + shift)
                for a, b, c, d in links
                if a < b and c < d
            ]
            self.text += text
            end = part.end
        self._gap(end, len(source), source[end:])
        # only neighbors of a mark are searched, because a paragraph may have thousands
        places = sorted({link[2:] for link in self._links})
        self._words: dict[tuple[int, int], int] = {place: i for i, place in enumerate(places)}
        self._by_start = sorted(self._links)
        self._by_end = sorted(self._links, key=lambda link: link.end)
        self._longest = max((link.end - link.start for link in self._links), default=0)

    def _gap(self, start: int, end: int, text: str) -> None:
        place = len(self.text)
        self._fixed.append((start, end, place, place + len(text)))
        self.text += text

    def _at_boundary(self, offset: int, opens: bool) -> int | None:
        """Return the place of an offset that is not inside a part.

        Args:
            opens: the mark at this offset belongs to what follows.
        """
        index = bisect_right(self._fixed, offset, key=lambda gap: gap[0]) - 1
        start, end, low, high = self._fixed[index]
        if not start <= offset <= end:
            return None
        if offset == end and (opens or start < end):
            return high
        return min(low + offset - start, high)

    def _over(self, start: int, end: int) -> list[Link]:
        """Return the links of the words of a part of the source."""
        first = bisect_right(self._by_start, start - self._longest, key=lambda link: link.start)
        last = bisect_left(self._by_start, end, key=lambda link: link.start)
        return [link for link in self._by_start[first:last] if link.end > start]

    def of_pair(self, start: int, end: int) -> tuple[int, int]:
        """Return where the words that translate a part of the source begin and end.

        Of the words that translate it and those that do not, it is the row of neighbors with the
        most of the former and the least of the latter.

        Raises:
            _Crossing: no word translates it.
        """
        low, high = self._at_boundary(start, True), self._at_boundary(end, False)
        if low is not None and high is not None:
            return low, high
        words = {self._words[link[2:]]: link[2:] for link in self._over(start, end)}
        best = total = first = 0
        chosen: tuple[int, int] | None = None
        last = -1
        for word in sorted(words):
            total -= word - last - 1  # the words between them do not translate it
            if total <= 0:
                total, first = 0, word
            total, last = total + 1, word
            if total > best:
                best, chosen = total, (first, word)
        if chosen is None:
            raise _Crossing
        begin, finish = words[chosen[0]], words[chosen[1]]
        return self._inside(start, begin, begin[0]), self._inside(end, finish, finish[1])

    def of_text(self, node: _Node) -> tuple[int, int]:
        """Return the place of a mark that the model has seen as text.

        Raises:
            _Crossing: its text is not in the translation.
        """
        before, start = self.source.count(node.mark.text, 0, node.start), -1
        for _ in range(before + 1):
            start = self.text.find(node.mark.text, start + 1)
            if start < 0:
                raise _Crossing
        return start, start + len(node.mark.text)

    def _inside(self, offset: int, word: tuple[int, int] | None, otherwise: int) -> int:
        """Return the place of an offset inside a word that stays unchanged, such as H2O.

        ``word``: its place in the translation; None = any.
        """
        for a, b, c, d in self._over(offset, offset + 1):
            if a < offset and word in (None, (c, d)) and self.source[a:b] == self.text[c:d]:
                return c + offset - a
        return otherwise

    def of_single(self, offset: int, kind: str) -> int:
        """Return the place of a mark: behind the word before it, or before the word after it.

        Raises:
            _Crossing: no word is aligned.
        """
        fixed = self._at_boundary(offset, kind == "open")
        if fixed is not None:
            return fixed
        if (inside := self._inside(offset, None, -1)) >= 0:
            return inside
        behind = kind != "open" and not self.source[offset - 1].isspace()
        before = bisect_left(self._by_start, offset, key=lambda link: link.start)
        after = bisect_right(self._by_end, offset, key=lambda link: link.end)
        if not before and after == len(self._by_end):
            raise _Crossing
        if before and (behind or after == len(self._by_end)):
            start = self._by_start[before - 1].start
            same = (link for link in self._over(start, start + 1) if link.start == start)
            return max(link.translation_end for link in same)
        end = self._by_end[after].end
        same = (link for link in self._over(end - 1, end) if link.end == end)
        return min(link.translation_start for link in same)


def _emit(nodes: Sequence[_Node], places: _Places, low: int, high: int) -> Iterator[Token]:
    """Yield the text between two places of the translation, with its marks, properly nested.

    Raises:
        _Crossing: a pair has no place that no other pair has.
    """
    placed = []
    for node in nodes:
        if node.mark.text:
            start, end = places.of_text(node)
        elif node.start < node.end:
            start, end = places.of_pair(node.start, node.end)
        else:
            start = end = places.of_single(node.start, node.mark.kind)
        placed.append((max(low, start), min(high, end), node))
    placed.sort(key=lambda item: item[0])
    position = low
    for start, end, node in placed:
        start = min(max(start, position), high)
        end = max(end, start)
        if places.source[node.start : node.end].strip() and not places.text[start:end].strip():
            raise _Crossing
        yield places.text[position:start]
        yield node.mark
        if node.mark.text and places.text[start:end] != node.mark.text:
            raise _Crossing
        if node.close is not None:
            yield from _emit(node.children, places, start, end)
            yield node.close
        position = end
    yield places.text[position:high]
