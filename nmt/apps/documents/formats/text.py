"""Plain text, where each line is a segment, and JSON, where each string value is one.

Text in both, and in other files with messages, may have tags such as ``<b>``.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from nmt.apps.documents.formats.encoding import convert_text, lines_of
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Mark, Token, text_unit, with_ruby, written
from nmt.errors import UserError

# a tag has nothing, a class, a slash or a value behind its name; <one word> is text
_TAG = r"<(?P<slash>/?)(?P<name>[A-Za-z][\w:-]*)(?:\.[^<>]*|\s*/?|\s[^<>=]*=[^<>]*)>"
_JSON = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[{}\[\],]')
# of i18next, $t(key), and of vue-i18n, @:key and @.lower:key
_REFERENCE = re.compile(r"(\$t\([^()]*\)|@(?:\.[a-z]+)?:(?:[\w.-]*\w|\([^()]*\)))")
# words of a program: btn-save, X-Name, en-US, camelCase, 10px, and hashes
_NAME = re.compile(
    r"[a-z\d]+(?:-[a-z\d]+)+|[A-Z][A-Za-z\d]*(?:-[A-Z][A-Za-z\d]*)+|[a-z]{2,3}(?:-[A-Z][A-Za-z]{1,3})+"
    r"|(?=[A-Za-z]*(?:[a-z][A-Z]|\d))[A-Za-z\d+%]+=*"
)
# what is only in one of them: paths, files, keys and addresses; colors, selectors, options
_PARTS = re.compile(r"[A-Za-z\d][_/\\:=.@][A-Za-z\d_/\\]|^(?:[.#@$~_-][\w./-]|\.{0,2}/|\w+:/)")
# what may have spaces: URLs, functions of CSS, types of files
_SPACED = re.compile(
    r"(?:data|mailto):|(?:rgb|hsl|hwb|lab|lch|oklab|oklch|var|calc|url|[a-z]+-gradient)a?\("
    r"|[\w.+-]+/[\w.+-]+;"
)
_VOID = {"br", "hr", "img", "input", "wbr"}


def tokens_of(text: str, directive: str = "") -> list[Token]:
    """Return a text as tokens: its tags are marks, and so are its annotations of ruby.

    Args:
        directive: pattern of what is text, though it may look like a tag, as %<name>s.
    """
    return with_ruby(tags_of(text, directive))


def tags_of(text: str, directive: str = "") -> list[Token]:
    """Return a text as tokens: its tags are marks, also those of ruby."""
    tokens: list[Token] = []
    end = 0
    for tag in _tag_or(directive).finditer(text):
        if tag["name"] is None:
            continue
        name, is_empty = tag["name"].lower(), tag[0].endswith("/>")
        tokens.append(text[end : tag.start()])
        if tag["slash"]:
            tokens.append(Mark("close", (tag[0],), name))
        else:
            tokens.append(Mark("single" if is_empty or name in _VOID else "open", (tag[0],), name))
        end = tag.end()
    return [*tokens, text[end:]]


@functools.cache
def _tag_or(directive: str) -> re.Pattern[str]:
    return re.compile(f"{_TAG}|{directive}" if directive else _TAG)


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate plain text line by line."""
    convert_text(source, target, job, _lines, guess=True)


def _lines(text: str, job: Job) -> Iterator[Item]:
    for number, line in enumerate(lines_of(text), 1):
        content = line.rstrip("\r\n")
        if not content.strip():  # a file may consist of blank lines
            yield line
            continue
        yield text_unit(content, tokens_of(content), f"line {number}", written)
        yield line[len(content) :]


def convert_json(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate the string values of JSON; keys and everything else stay.

    ``Reading.keys`` and ``skip_keys`` choose among the values. Without them, a value stays that
    looks like a name, a path or a color.
    """
    convert_text(source, target, job, _values)


def _values(text: str, job: Job) -> Iterator[Item]:
    try:
        json.loads(text, parse_int=str)  # an integer may have any length
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg}"
        fix = "correct the file, for example with an editor that checks JSON"
        raise UserError(what, at=f"{job.name}:{error.lineno}:{error.colno}", fix=fix) from error
    except RecursionError as error:
        fix = "translate a file with fewer levels"
        raise UserError("its values are nested too deeply", at=job.name, fix=fix) from error
    escaped = text.isascii() and "\\u" in text

    def quoted(tokens: Sequence[Token]) -> str:
        value = written(tokens)
        has_surrogate = any("\ud800" <= char <= "\udfff" for char in value)
        return json.dumps(value, ensure_ascii=escaped or has_surrogate)

    path: list[str | int] = []  # keys, and indexes in lists
    end, line = 0, 1
    for token in _JSON.finditer(text):
        string, is_key = token[1], token[2] is not None
        if string is None:
            _follow(path, token[0])
            continue
        value = json.loads(string)
        if is_key:
            path[-1] = value
            continue
        line += text.count("\n", end, token.start())
        yield text[end : token.start()]
        end = token.end()
        if _is_wanted(path, value, line, job):
            yield text_unit(token[0], _value_tokens(value), f"line {line}", quoted)
        else:
            yield token[0]
    yield text[end:]


def _follow(path: list[str | int], sign: str) -> None:
    """Change the path of a value at a sign of the syntax."""
    if sign in "{[":
        path.append("" if sign == "{" else 0)
    elif sign in "}]":
        path.pop()
    elif isinstance(path[-1], int):  # a comma in a list
        path[-1] += 1


def _is_wanted(path: Sequence[str | int], value: str, line: int, job: Job) -> bool:
    """Return whether to translate a value; count it if not."""
    reading = job.reading
    place, at = ".".join(map(str, path)), f"line {line}"
    if not any(map(str.isalpha, value)):
        return False
    if any(fnmatch.fnmatchcase(place, pattern) for pattern in reading.skip_keys):
        job.report.leave("--skip-keys", at)
        return False
    if reading.keys:
        selected = any(fnmatch.fnmatchcase(place, pattern) for pattern in reading.keys)
        if not selected:
            job.report.leave("not in --keys", at)
        return selected
    if _is_code(value.strip()):
        job.report.leave("names, paths, colors and other codes", at)
        return False
    return True


def _is_code(value: str) -> bool:
    """Return whether a value looks like code, not like text for a reader."""
    if _SPACED.match(value):
        return True
    is_word = len(value.split()) == 1 and value.isascii() and value[-1] not in ".,:;!?"
    return is_word and bool(_NAME.fullmatch(value) or _PARTS.search(value))


def _value_tokens(value: str) -> list[Token]:
    """Return a value as tokens: its tags and its references to other values are marks."""
    tokens: list[Token] = []
    for index, part in enumerate(_REFERENCE.split(value)):
        tokens += [Mark("single", (part,), text=part)] if index % 2 else tags_of(part)
    return with_ruby(tokens)
