"""Gettext catalogs (.po): each message without a translation gets one.

Entries that have a translation, also a fuzzy one, stay as they are. polib would write all of them
with other line breaks; here an entry that does not change keeps its bytes, so that version control
shows what was translated.
"""

from __future__ import annotations

import gettext
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from nmt.apps.documents.formats.directives import changed, pattern_of, to_keep
from nmt.apps.documents.formats.encoding import convert_text, lines_of
from nmt.apps.documents.formats.text import tokens_of
from nmt.apps.documents.job import Job
from nmt.apps.documents.segments import Item, Segment, Unit, written
from nmt.errors import UserError
from nmt.text.languages import base_language, standard_code

# not the word that a template has in its place
_DECLARED = re.compile(rb"Content-Type:[^\n]*charset=(?!CHARSET)([\w.-]+)(?=\\n|\"|\s)")
_KEYWORD = re.compile(r"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)(?=[\s\"]|$)\s*(.*)")
_QUOTED = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*')
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPED = str.maketrans(
    {
        **{code: f"\\{code:03o}" for code in range(1, 32)},
        **dict.fromkeys((0, *range(0xD800, 0xE000)), "\ufffd"),  # no text in a file
        **{character: f"\\{letter}" for letter, character in _ESCAPES.items()},
        "\\": "\\\\",
        '"': '\\"',
    }
)
_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;\n]+)")
_CHECK = "check the file with msgfmt -c"
_NUMBERS = (*range(1001), 10**6)  # for which msgfmt tries the plural forms, and a large one
_OFTEN = 5  # a form for fewer numbers may lack directives


@dataclass
class _Plurals:
    """The plural forms that the header names.

    Attributes:
        count: of the forms; 0 = it names none.
        one: index of the form for 1.
        rare: indexes of the forms for a few numbers.
    """

    count: int = 0
    one: int = 0
    rare: frozenset[int] = frozenset()


@dataclass
class _Entry:
    """A message.

    Attributes:
        line: of its first line in the file.
        raw: its lines with their ends.
        texts: by keyword, such as msgstr[0].
        first: keyword -> index of its line in ``raw``.
    """

    line: int
    raw: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)

    @property
    def targets(self) -> list[str]:
        """The keywords of its translations."""
        return [keyword for keyword in self.texts if keyword.startswith("msgstr")]

    @property
    def flags(self) -> list[str]:
        """What its comments say for programs, such as fuzzy."""
        lines = (line[2:] for line in self.raw if line.startswith("#,"))
        return [flag.strip() for line in lines for flag in line.split(",")]

    @property
    def formats(self) -> tuple[str, ...]:
        """The flags that say what its placeholders look like, such as c-format."""
        return tuple(sorted(flag for flag in self.flags if flag.endswith("-format")))


def convert(source: BinaryIO, target: BinaryIO, job: Job) -> None:
    """Translate a catalog."""
    convert_text(source, target, job, _items, _DECLARED)


def _items(text: str, job: Job) -> Iterator[Item]:
    plurals = _Plurals()
    found = False
    for entry in _entries(text, job.name):
        if not entry.targets:
            yield "".join(entry.raw)
            continue
        found = True
        if not entry.texts.get("msgid") and entry.texts.keys() == {"msgid", "msgstr"}:
            at = f"{job.name}:{entry.line + entry.first['msgstr']}"
            plurals = _plurals(entry.texts["msgstr"], at)
            yield _header(entry, job)
            continue
        has_translation = any(entry.texts[keyword] for keyword in entry.targets)
        if has_translation and not job.retranslate:
            job.report.kept += 1
            yield "".join(entry.raw)
        else:
            yield _unit(entry, plurals)
    if not found:
        raise UserError("has no messages", at=job.name, fix="check that it is a gettext catalog")


def _entries(text: str, name: str) -> Iterator[_Entry]:
    """Yield the entries; what follows the last translation of one belongs to the next.

    Raises:
        UserError: a line is not one of a catalog.
    """
    entry, keyword = _Entry(1), ""
    for number, line in enumerate(lines_of(text), 1):
        at = f"{name}:{number}"
        content = line.strip()
        starts = _KEYWORD.match(content)
        if not content or content.startswith(("#", "domain ")):
            if entry.targets:
                yield entry
                entry, keyword = _Entry(number), ""
            entry.raw.append(line)
            continue
        if starts and starts[1] in ("msgctxt", "msgid") and entry.targets:
            yield entry
            entry = _Entry(number)
        if starts:
            keyword, content = starts[1], starts[2]
            _check_order(entry, keyword, at)
            entry.texts[keyword], entry.first[keyword] = "", len(entry.raw)
        quoted = _QUOTED.fullmatch(content or '""')
        if quoted is None or not keyword:
            what = "this is not a line of a catalog: a text in double quotes, in one line"
            raise UserError(what, at=at, fix=_CHECK)
        entry.texts[keyword] += _ESCAPE.sub(_character, quoted[1])
        entry.raw.append(line)
    if entry.texts and not entry.targets:
        raise UserError("the last message has no msgstr", at=f"{name}:{entry.line}", fix=_CHECK)
    yield entry


def _check_order(entry: _Entry, keyword: str, at: str) -> None:
    plural = "msgid_plural" in entry.texts
    problem = ""
    if keyword in entry.texts:
        problem = f"a second {keyword} in one message"
    elif keyword.startswith("msgstr") and "msgid" not in entry.texts:
        problem = f"{keyword} without msgid"
    elif keyword.startswith("msgstr") and plural != keyword.endswith("]"):
        problem = "msgstr[0], msgstr[1] and so on belong to a msgid_plural, and msgstr to others"
    elif keyword == "msgid_plural" and "msgid" not in entry.texts:
        problem = "msgid_plural without msgid"
    if problem:
        raise UserError(problem, at=at, fix=_CHECK)


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code.isdigit() else _ESCAPES.get(code, code)


def _plurals(header: str, at: str) -> _Plurals:
    """Return the plural forms of a header.

    Raises:
        UserError: a number has no form.
    """
    match = _PLURALS.search(header)
    if not match:  # also in a template, which has words in place of the numbers
        return _Plurals()
    count, expression = match.groups()
    problem = "its expression is not one of C that gettext can read"
    try:
        form = gettext.c2py(expression)
        numbers: Counter[int] = Counter()  # of each form
        for number in _NUMBERS:
            problem = f"its expression cannot be computed for n={number}"
            if not 0 <= form(number) < int(count):
                problem = f"n={number} has a form that is not one of nplurals={count[:9]}"
                raise ValueError
            numbers[form(number)] += 1
        rare = frozenset(each for each, times in numbers.items() if times < _OFTEN)
        return _Plurals(int(count), form(1), rare)
    except (ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        example = "such as nplurals=2; plural=(n != 1);"
        fix = f"write the plural forms of the target language, {example} and {_CHECK}"
        raise UserError(f"Plural-Forms: {problem}", at=at, fix=fix) from error


def _header(entry: _Entry, job: Job) -> str:
    """Return the first entry, with the target language if it names none or that of the source."""
    header, tgt = entry.texts["msgstr"], standard_code(job.tgt).replace("-", "_")
    language = re.search(r"^Language:[^\S\n]*(.*)$", header, re.MULTILINE)
    stated = language[1].strip() if language else ""
    if stated and base_language(stated) not in (base_language(job.src), base_language(job.tgt)):
        job.report.count(f"with Language {stated}, while the model translates to {job.tgt}")
    if stated and base_language(stated) != base_language(job.src):
        return "".join(entry.raw)
    line = f"Language: {tgt}"
    if language is None:
        new = f"{header}{line}\n"
    else:
        new = header[: language.start()] + line + header[language.end() :]
    return _with_texts(entry, {"msgstr": new})


def _unit(entry: _Entry, plurals: _Plurals) -> Unit:
    """Return the unit of a message: the form for 1 is from msgid, others from msgid_plural."""
    formats, has_plural = entry.formats, "msgid_plural" in entry.texts
    complete = entry.texts["msgid_plural" if has_plural else "msgid"]  # with all directives

    def segment_of(keyword: str, may_lack: bool) -> Segment:
        def check(translation: str) -> str:
            problems = []
            if not segment.problem and (wrong := changed(complete, translation, formats, may_lack)):
                problems.append(f"not as in the source: {', '.join(wrong)}")
            if keyword == "msgid_plural" and plurals.count != len(entry.targets):
                forms = f"nplurals={plurals.count}" if plurals.count else "no Plural-Forms"
                problems.append(f"{len(entry.targets)} forms, but the header has {forms}")
            return "; ".join(problems)

        text = entry.texts.get(keyword, "")
        keep = tuple(dict.fromkeys(to_keep(text, formats)))
        tokens = tokens_of(text, pattern_of(formats))
        place = f"line {entry.line + entry.first['msgid']}"
        segment = Segment(tokens, place, flags=formats, keep=keep, check=check)
        return segment

    singular = segment_of("msgid", has_plural and plurals.one in plurals.rare)
    many = segment_of("msgid_plural", False)
    sources = dict.fromkeys(entry.targets, singular)
    for keyword in entry.targets if has_plural else ():
        is_singular = keyword == f"msgstr[{plurals.one}]" and len(entry.targets) > 1
        sources[keyword] = singular if is_singular else many
    segments = [singular, many] if has_plural else [singular]

    def render() -> str:
        if all(segment.translated is None and not segment.problem for segment in segments):
            return "".join(entry.raw)
        texts = {keyword: written(s.result) for keyword, s in sources.items()}
        # which of three forms is which, a translation of the plural does not say
        fuzzy = len(entry.targets) > 2 or any(segment.problem for segment in segments)
        return _with_texts(entry, texts, fuzzy)

    return Unit(segments, render)


def _with_texts(entry: _Entry, texts: dict[str, str], fuzzy: bool | None = None) -> str:
    """Return an entry with other translations.

    Args:
        texts: by keyword.
        fuzzy: whether the entry has this flag; None = as before.
    """
    lines: list[str] = []
    newline = "\r\n" if entry.raw[-1].endswith("\r\n") else "\n"
    keyword = ""
    keywords = {index: keyword for keyword, index in entry.first.items()}
    for index, line in enumerate(entry.raw):
        keyword = keywords.get(index, keyword)
        if keyword not in texts:
            lines.append(line)
        elif index in keywords:
            parts = lines_of(texts[keyword]) or [""]
            if len(parts) > 1:  # they begin below the keyword
                parts = ["", *parts]
            for number, part in enumerate(parts):
                start = "" if number else f"{keyword} "
                lines.append(f'{start}"{part.translate(_ESCAPED)}"{newline}')
    if fuzzy is not None and fuzzy != ("fuzzy" in entry.flags):
        lines = _flagged(lines, fuzzy, newline)
    if not entry.raw[-1].endswith("\n"):
        lines[-1] = lines[-1].removesuffix(newline)
    return "".join(lines)


def _flagged(lines: list[str], fuzzy: bool, newline: str) -> list[str]:
    index = next(
        index
        for index, line in enumerate(lines)
        if line.startswith("#,") or not line.startswith(("#", "\r", "\n", "domain "))
    )
    flags, rest = ["fuzzy"] if fuzzy else [], lines[index:]
    if rest[0].startswith("#,"):
        names = (flag.strip() for flag in rest.pop(0)[2:].split(","))
        flags += [flag for flag in names if flag != "fuzzy"]
    new = [f"#, {', '.join(flags)}{newline}"] if flags else []
    return [*lines[:index], *new, *rest]
