"""Subtitles, SubRip (.srt) and WebVTT (.vtt): a cue is a segment; numbers and times stay.

The lines of a cue are joined for translation, and the result is broken into lines of similar
length. A line of another speaker, which begins with a dash or a voice, and a line of a song stay
lines. A SubRip cue continues after a blank line. In WebVTT, players ignore text after a blank line.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import regex

from nmt.apps.documents.formats.encoding import convert_text
from nmt.apps.documents.formats.text import tags_of
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, Unit, plain, text_unit, with_ruby
from nmt.errors import UserError

MAX_WIDTH = 42  # characters of a line that players and guidelines expect; longer ones are kept
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_TIME = r"\s*(?:\d+:)?\d+:\d\d(?:[.,]\d+)?\s*"
_TIMING = re.compile(rf"\ufeff?{_TIME}-->{_TIME}")
_BLOCK = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?!\S)")  # of WebVTT, without a cue
_DIRECTION = "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
# positions and styles of SubRip, times inside a cue, and tags of WebVTT with a name or a language
_CODE = re.compile(
    r"(\{\\[^{}]*\}|\{/?[biu]\}|<\d[\d:.]*>|<(?:[bciuv]|lang|ruby|rt)(?:\.[^<>\s]*)?\s[^<>]*>"
    rf"|^{_DIRECTION}+|{_DIRECTION}+$)",
    re.MULTILINE,
)
# a line of another speaker or of a song, also behind tags and characters without a shape
_NEXT_LINE = regex.compile(
    r"\n(?!(?:[^\S\n]|\p{Cf}|\{\\[^{}\n]*\}|\{/?[biu]\}|</?(?!v[ .])\w[^<>\n]*>)*+"
    r"(?:[\p{Pd}\u2212\u2669-\u266c]|<v[ .]))"
)


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate the text of the cues."""
    convert_text(source, target, job, _items, guess=True)


def _items(text: str, job: Job) -> Iterator[Item]:
    lines = _LINE.findall(text)
    is_time = [bool(_TIMING.match(line)) for line in lines]
    if not any(is_time):
        what = "has no line with times, such as 00:00:01,000 --> 00:00:02,000"
        fix = "check that the file has subtitles in the format that its suffix says"
        raise UserError(what, at=job.name, fix=fix)
    is_vtt = lines[0].startswith("WEBVTT")
    in_cue, begin = False, 0  # of a paragraph of text
    for index, line in enumerate([*lines, ""]):
        is_first = index == begin and not any(is_time[max(0, index - 1) : index])
        is_name = line.strip().isdigit() or (is_vtt and is_first)
        is_name = is_name and any(is_time[index + 1 : index + 2])
        if line.strip() and not is_name and not any(is_time[index : index + 1]):
            continue
        paragraph = "".join(lines[begin:index])
        if in_cue and paragraph:
            yield _unit(paragraph, begin + 1)
        else:
            yield paragraph
            if any(map(str.isalpha, paragraph)) and not _BLOCK.match(paragraph):
                job.report.leave("outside of a cue", f"line {begin + 1}")
        yield line
        in_cue = any(is_time[index : index + 1]) or (in_cue and not is_name and not is_vtt)
        begin = index + 1


def _unit(paragraph: str, line: int) -> Unit:
    content = paragraph.rstrip("\r\n")
    newline = "\r\n" if "\r\n" in paragraph else "\n"
    text = re.sub(r"\r\n?", "\n", content)
    width = max(MAX_WIDTH, *map(len, plain(_tokens(text)).split("\n")))

    def write(tokens: Sequence[Token]) -> str:
        return _wrapped(tokens, width).replace("\n", newline) + paragraph[len(content) :]

    return text_unit(paragraph, _tokens(_NEXT_LINE.sub(" ", text)), f"line {line}", write)


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    for index, part in enumerate(_CODE.split(text)):
        if index % 2 == 0:
            tokens += tags_of(part)
        elif name := re.match("<([a-z]+)", part):
            tokens.append(Mark("open", (part,), name[1]))
        else:
            tokens.append(Mark("single", (part,)))
    return with_ruby(tokens)


def _wrapped(tokens: Sequence[Token], width: int) -> str:
    """Return tokens as text, in as few lines of at most ``width`` characters as possible."""
    breaks = set()
    start = 0
    text = plain(tokens)
    for line in text.split("\n"):
        breaks |= {start + place for place in _breaks(line, width)}
        start += len(line) + 1
    result, offset = "", 0
    for token in tokens:
        if isinstance(token, str):
            places = range(offset, offset + len(token))
            result += "".join(
                "\n" if place in breaks else char for place, char in zip(places, token, strict=True)
            )
            offset += len(token)
        else:
            result += str(token)
    return result


def _breaks(line: str, width: int) -> list[int]:
    """Return the spaces at which a text is broken, so that its lines have similar lengths."""
    spaces = [space.start() for space in re.finditer(" ", line)]
    breaks: list[int] = []  # as late as possible
    start, before = 0, -1
    for end in [*spaces, len(line)]:
        if end - start > width and before >= start:
            breaks.append(before)
            start = before + 1
        before = end
    aims = [len(line) * number / (len(breaks) + 1) for number in range(1, len(breaks) + 1)]
    similar = sorted({_nearest(spaces, aim) for aim in aims})
    ends = itertools.pairwise([-1, *similar, len(line)])
    return similar if all(end - start - 1 <= width for start, end in ends) else breaks


def _nearest(places: Sequence[int], aim: float) -> int:
    index = bisect.bisect(places, aim)
    return min(places[max(0, index - 1) : index + 1], key=lambda place: abs(place - aim))
