"""Export the text rules of the Python code as data for JavaScript.

A page that translates must clean text and end sentences as training did. To avoid a second copy of
the tables, patterns and word lists come from ``nmt.text.unicode`` and ``nmt.text.sentences``, and
character classes from Python's own functions.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import regex

from nmt.data import lines
from nmt.text import sentences, unicode

_LAST = 0x32000  # no letter has a code point above it; only tags and variation selectors have
_CODES = (*range(_LAST), *range(0xE0000, 0xE0200))
_EVERYTHING = "".join(map(chr, range(0x110000)))
_ATOM = regex.compile(
    r"\\[pP]\{[^}]*\}|\\[wWsSdD]|\\.|\(\?r\)|\(\?V1\)|\(\?i\)|[*+?}]\+|.", regex.S
)
# what text.js uses of each module, by its name, without the leading underscore
CONSTANTS = {
    sentences: "ESCAPE MARKS BEFORE_SPACE SPACE UNSPACED CLOSES OPENS BRACKET LONGEST_QUOTE "
    "FIRST_LETTER LAST_WORD INITIAL WITH_STOPS ORDINAL UNIT NO_VOWEL ORDINALS TITLES "
    "BEFORE_NUMBER SHORT KNOWN CONTROL",
    lines: "CONTROL LONGEST_SENTENCE",
    unicode: "DROP SPACE ANY RUN MOST_MARKS ZWSP ZWNJ ZWJ TATWEEL JOINING UNSPACED EMOJI_SIGNS "
    "KEYCAP BLACK_FLAG",
}
# character classes of text, by the names that text.js uses
CLASSES: dict[str, Callable[[str], bool]] = {
    "ALPHA": str.isalpha,
    "BLANK": lines.is_blank,
    "CASELESS": lambda char: char.isalpha() and char.lower() == char.upper(),
    "COMBINING": lambda char: unicodedata.combining(char) > 0,
    "DIGIT": str.isdigit,
    "LOWER": str.islower,
    "MARK": lambda char: unicodedata.category(char)[0] == "M",
    "SPACE": str.isspace,
    "SYMBOL": lambda char: unicodedata.category(char) in ("So", "Sm", "Sk"),
    "TITLE": lambda char: unicodedata.category(char) == "Lt",
    "UPPER": str.isupper,
}


@functools.cache
def rules() -> str:
    """Return the rules as an expression of JavaScript."""
    classes: dict[str, int] = {}
    tables: dict[str, Any] = {
        module.__name__.rpartition(".")[2]: {
            name: _constant(module, name, classes) for name in names.split()
        }
        for module, names in CONSTANTS.items()
    }
    tables["characters"] = {
        name: _ranges(code for code in _CODES if test(chr(code))) for name, test in CLASSES.items()
    }
    # [first, last, script] of letters, marks and digits, as the form clean needs it
    scripts = ((code, unicode.script(chr(code))) for code in _CODES)
    named = {*unicode.JOINING, *unicode.UNSPACED, "HANGUL"}
    kept = ((code, name if name in named else "OTHER") for code, name in scripts if name)
    tables["scripts"] = [list(run) for run in _runs(kept)]
    tables["classes"] = list(classes)
    return json.dumps(tables, ensure_ascii=True, separators=(",", ":"))


def _constant(module: ModuleType, name: str, classes: dict[str, int]) -> Any:
    values = vars(module)
    value = values[f"_{name}" if f"_{name}" in values else name]
    if isinstance(value, re.Pattern | regex.Pattern):
        return to_javascript(value.pattern, classes)
    return sorted(value) if isinstance(value, frozenset) else value


def to_javascript(pattern: str, classes: dict[str, int]) -> dict[str, Any]:
    """Translate a pattern of ``re`` or ``regex`` for JavaScript.

    A possessive repetition becomes a greedy one. Of a pattern that is searched backwards, (?r), a
    lookbehind is made.

    Args:
        classes: ranges of the sets so far, with their index; new ones are added.

    Returns:
        ``flags``, and ``parts``: texts, and indices of sets.

    Raises:
        ValueError: JavaScript has no such construct.
    """
    flags, parts, backwards, position = "u", [""], False, 0
    version = "(?V1)" if "(?V1)" in pattern else ""

    def add_set(source: str) -> None:
        ranges = _ranges_of(version + source)
        parts.extend([classes.setdefault(ranges, len(classes)), ""])  # type: ignore[list-item]

    while position < len(pattern):
        if pattern[position] == "[":
            end = _set_end(pattern, position)
            add_set(pattern[position:end])
            position = end
            continue
        atom = _ATOM.match(pattern, position)[0]
        position += len(atom)
        if atom in ("(?V1)", "(?r)", "(?i)"):
            backwards = backwards or atom == "(?r)"
            flags += "i" if atom == "(?i)" else ""
        elif re.fullmatch(r"\\[pPwWsSdD].*", atom):
            add_set(atom)
        elif re.fullmatch(r"[*+?}]\+", atom):
            parts[-1] += atom[0]
        elif re.fullmatch(r"\\[A-Za-z].*", atom) or pattern[position - 1 : position + 2] == "(?P":
            raise ValueError(atom)
        else:
            parts[-1] += {r"\-": "-", r"\ ": " "}.get(atom, atom)
    if backwards:
        parts[0] = f"(?<={parts[0]}"
        parts[-1] += ")"
    return {"flags": flags, "parts": parts}


def _set_end(pattern: str, start: int) -> int:
    """Return the index after a set, which may have sets inside."""
    depth, position = 0, start
    while True:
        char = pattern[position]
        if char == "\\":
            position += 1
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if not depth:
                return position + 1
        position += 1


@functools.cache
def _ranges_of(source: str) -> str:
    """Return the characters of a set of ``regex`` as ranges."""
    spans = (match.span() for match in regex.finditer(f"(?:{source})+", _EVERYTHING))
    return "".join(_range(first, end - 1) for first, end in spans)


def _ranges(codes: Iterable[int]) -> str:
    return "".join(_range(first, last) for first, last, _ in _runs((c, True) for c in codes))


def _range(first: int, last: int) -> str:
    return f"\\u{{{first:x}}}" + (f"-\\u{{{last:x}}}" if last > first else "")


def _runs(values: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """Join neighboring codes with one value: (first, last, value)."""
    run: tuple[int, int, Any] | None = None
    for code, value in values:
        if run and (run[1] + 1, run[2]) == (code, value):
            run = (run[0], code, value)
        else:
            if run:
                yield run
            run = (code, code, value)
    if run:
        yield run
