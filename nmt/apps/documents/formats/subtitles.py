"""Subtitles, SubRip (.srt) and WebVTT (.vtt): a cue is a segment; numbers and times stay.

The lines of a cue are joined for the translation, which is broken again into lines of similar
length. In a dialog, where lines begin with a dash, each of these lines stays a line.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from nmt.apps.documents.formats.encoding import read_text, write_text
from nmt.apps.documents.formats.text import tokens_of
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, plain, text_unit
from nmt.errors import UserError

MAX_WIDTH = 42  # characters of a line that players and guidelines expect; longer ones are kept
_TIME = r"(?:\d+:)?\d+:\d\d[.,]\d{1,3}"
_TIMING = re.compile(rf"^[^\S\n]*{_TIME}[^\S\n]*-->[^\S\n]*{_TIME}.*\n?", re.MULTILINE)
_CODE = re.compile(r"(\{\\[^}]*\}|<\d[\d:.]*>)")  # positions of SubRip, and times inside a cue
_NEXT_LINE = re.compile(r"\n(?!\s*[-\u2013\u2014])")


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate the text of the cues."""
    text, encoding = read_text(source, job.name)
    newline = "\r\n" if "\r\n" in text else "\n"
    text = text.replace("\r\n", "\n")
    if not _TIMING.search(text):
        what = "has no line with times, such as 00:00:01,000 --> 00:00:02,000"
        fix = "check that the file has subtitles in the format that its ending says"
        raise UserError(what, at=job.name, fix=fix)
    parts = (part.replace("\n", newline) for part in job.translated(_items(text)))
    write_text(target, parts, encoding, job.name)


def _items(text: str) -> Iterator[Item]:
    end, line = 0, 1
    for timing in _TIMING.finditer(text):
        yield text[end : timing.end()]
        line += text.count("\n", end, timing.end())
        found = re.compile(r"(?:(?!.*-->).*\S.*\n?)*").match(text, timing.end())
        end = found.end() if found else timing.end()
        content = text[timing.end() : end]
        cue = content.rstrip("\n")
        joined = _NEXT_LINE.sub(" ", cue)
        width = max(MAX_WIDTH, *map(len, re.sub(r"<[^>]*>", "", cue).split("\n")))

        def write(tokens: Sequence[Token], width: int = width) -> str:
            return _wrapped(tokens, width)

        yield text_unit(cue, _tokens(joined), f"line {line}", write)
        yield content[len(cue) :]
        line += content.count("\n")
    yield text[end:]


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    for index, part in enumerate(_CODE.split(text)):
        tokens += [Mark("single", (part,))] if index % 2 else tokens_of(part)
    return tokens


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
    for count in range(math.ceil(len(line) / width), len(spaces) + 2):
        aim = len(line) / max(1, count)
        chosen = sorted({min(spaces, key=lambda s: abs(s - aim * n)) for n in range(1, count)})
        ends = [-1, *chosen, len(line)]
        if all(b - a - 1 <= width for a, b in itertools.pairwise(ends)):
            return chosen
    return spaces  # a word is longer than a line
