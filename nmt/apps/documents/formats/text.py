"""Plain text, a line a segment, and JSON, of which the string values are segments.

Both, and other files with messages, may have tags such as ``<b>`` in their text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from nmt.apps.documents.formats.encoding import convert_text, lines_of
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, text_unit, written
from nmt.errors import UserError

_TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)(?:[^<>\w:-][^<>]*)?>")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_VOID = {"br", "hr", "img", "input", "wbr"}


def tokens_of(text: str) -> list[Token]:
    """Return a text as tokens: its tags are marks."""
    tokens: list[Token] = []
    end = 0
    for tag in _TAG.finditer(text):
        name, is_empty = tag[2].lower(), tag[0].endswith("/>")
        tokens.append(text[end : tag.start()])
        if tag[1]:
            tokens.append(Mark("close", (tag[0],), name))
        else:
            tokens.append(Mark("single" if is_empty or name in _VOID else "open", (tag[0],), name))
        end = tag.end()
    return [*tokens, text[end:]]


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate plain text line by line."""
    convert_text(source, target, job, _lines, guess=True)


def _lines(text: str, job: Job) -> Iterator[Item]:
    for number, line in enumerate(lines_of(text), 1):
        content = line.rstrip("\r\n")
        yield text_unit(content, tokens_of(content), f"line {number}", written)
        yield line[len(content) :]


def convert_json(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate the string values of JSON; keys and everything else stay."""
    convert_text(source, target, job, _values)


def _values(text: str, job: Job) -> Iterator[Item]:
    try:
        json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg}"
        fix = "correct the file, for example with an editor that checks JSON"
        raise UserError(what, at=f"{job.name}:{error.lineno}:{error.colno}", fix=fix) from error
    except RecursionError as error:
        fix = "translate a file with fewer levels"
        raise UserError("its values are nested too deeply", at=job.name, fix=fix) from error
    escaped = text.isascii() and "\\u" in text

    def quoted(tokens: Sequence[Token]) -> str:
        return json.dumps(written(tokens), ensure_ascii=escaped)

    end, line = 0, 1
    for string in _STRING.finditer(text):
        line += text.count("\n", end, string.start())
        yield text[end : string.start()]
        if string[1] is not None:  # a key
            yield string[0]
        else:
            value = json.loads(string[0])
            yield text_unit(string[0], tokens_of(value), f"line {line}", quoted)
        end = string.end()
    yield text[end:]
