"""Map one spelling of a language to another, using a table of letters or words."""

from __future__ import annotations

import os
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import regex

from nmt.data.lines import read_lines
from nmt.errors import UserError
from nmt.runtime.files import TEMPORARY, disk_errors
from nmt.runtime.words import quantity
from nmt.store.output import CHOOSE_ANOTHER, check_output_file
from nmt.text.letters import capitalized, upper

SHOWN = 3  # changed lines and unused rows that the report names


class Spelling:
    """A table of what is written and its replacement, for text of one language.

    A line is read once from left to right, and at each place the longest row applies, so no row
    changes what another one has written. A row in small letters also applies to a capital initial
    and to capitals, unless the table has a row for them. NFC and NFD are equivalent; a letter with
    an additional mark is another letter.

    Attributes:
        changed: lines that the table has changed.
        lines: lines that were mapped.
        examples: the first changed lines, before and after.
    """

    def __init__(self, lang: str, path: Path) -> None:
        """Read a table, UTF-8 with ``WRITTEN<TAB>REPLACEMENT`` in each line.

        Raises:
            UserError: a line has not two columns, the first is empty, or stands there twice.
        """
        self.lang, self.path = lang, path
        self._rows: dict[str, str] = {}
        self.start()
        for number, line in enumerate(read_lines(path, clean=False), 1):
            if not line.strip():
                continue
            written, *columns = unicodedata.normalize("NFC", line).split("\t")
            if len(columns) != 1 or not written or written in self._rows:
                what = "stands in two lines" if written in self._rows else "is not a row"
                raise UserError(
                    f"{line!r} {what}",
                    at=f"{path}:{number}",
                    fix="write WRITTEN, a tab and REPLACEMENT in each line, each WRITTEN once",
                )
            self._rows[written] = columns[0]
        if not self._rows:
            raise UserError(
                "the table has no row", at=str(path), fix="write WRITTEN, a tab and REPLACEMENT"
            )
        self._forms = {form: written for written in self._rows for form in self._variants(written)}
        self._forms.update((written, written) for written in self._rows)
        longest = sorted(
            {form for row in self._forms for form in (row, unicodedata.normalize("NFD", row))},
            key=lambda form: (-len(form), form),
        )
        self._pattern = regex.compile(rf"(?:{'|'.join(map(regex.escape, longest))})(?!\p{{M}})")

    def start(self) -> None:
        """Reset the counts: a text may be read several times."""
        self._used: Counter[str] = Counter()
        self.lines = self.changed = 0
        self.examples: list[tuple[str, str]] = []

    def _variants(self, written: str) -> set[str]:
        if written != written.lower():
            return set()
        return {capitalized(written, self.lang), upper(written, self.lang)}

    def map(self, line: str) -> str:
        """Return a line in the spelling of the table."""
        mapped = self._pattern.sub(self._replacement, line)
        self.lines += 1
        if mapped != line:
            self.changed += 1
            if len(self.examples) < SHOWN:
                self.examples.append((line, mapped))
        return mapped

    def _replacement(self, match: regex.Match[str]) -> str:
        found = unicodedata.normalize("NFC", match[0])
        written = self._forms[found]
        self._used[written] += 1
        replacement = self._rows[written]
        if found == written:
            return replacement
        start, end = match.span()
        around = match.string[max(0, start - 1) : start] + match.string[end : end + 1]
        # the only letter of a form that is a capital may begin a word or stand in capitals
        initial = found != upper(found, self.lang) or (
            sum(map(str.isalpha, found)) == 1 and not any(map(str.isupper, around))
        )
        return (capitalized if initial else upper)(replacement, self.lang)

    def map_all(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines in the spelling of the table."""
        return map(self.map, lines)

    def report(self) -> str:
        """Return a summary: changed lines with examples, and unused rows."""
        share = self.changed / max(1, self.lines)
        parts = [
            f"{self.path} changed {self.changed:,} of {quantity(self.lines, f'{self.lang} line')} "
            f"({share:.1%})"
        ]
        parts += [f"  {before}\n  -> {after}" for before, after in self.examples]
        if unused := [written for written in self._rows if not self._used[written]]:
            more = ", ..." if len(unused) > SHOWN else ""
            parts.append(f"  rows without a match: {', '.join(unused[:SHOWN])}{more}")
        return "\n".join(parts)


def spellings(settings: Iterable[str], langs: Iterable[str]) -> dict[str, Spelling]:
    """Read the tables of ``--spelling LANG=FILE``, by language.

    Args:
        langs: languages of the text; empty = it has one language, with any code.

    Raises:
        UserError: a setting has no language of the text, a language has two tables, or a table is
            wrong.
    """
    tables: dict[str, Spelling] = {}
    choices = [*langs]
    for setting in settings:
        lang, _, file = setting.partition("=")
        if not lang or not file or lang in tables or (choices and lang not in choices):
            what = "is the second table of this language" if lang in tables else "names no language"
            named = f" of the text ({' and '.join(choices)})" if choices else ""
            raise UserError(
                f"{setting} {what}{named}",
                at="--spelling",
                fix=f"write --spelling {(choices or ['shp'])[-1]}=FILE, once for each language",
            )
        tables[lang] = Spelling(lang, Path(file))
    return tables


def map_file(source: Path, target: Path, table: Spelling, force: bool) -> None:
    """Map the spelling of a file line by line, and print what changed.

    Args:
        force: replace an existing target.
    """
    check_output_file(target, force, [str(source)])
    with disk_errors(target, elsewhere=CHOOSE_ANOTHER):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=target.parent) as folder:
            draft = Path(folder) / target.name
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                for line in table.map_all(read_lines(source, clean=False)):
                    file.write(f"{line}\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
    print(table.report(), file=sys.stderr)
