"""The key of a blind sheet: which system wrote which translation. Judges do not get it.

The id of a row is the number of its line and a hash of the texts that the row shows. So a row is
found wherever it was moved, and changed texts are noticed. The hash does not reveal the systems.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from nmt.data.lines import is_blank, read_lines
from nmt.errors import UserError
from nmt.runtime.files import LARGE, json_object, read_text
from nmt.runtime.words import quantity
from nmt.store.manifest import SEAL, seal, unseal

FORMAT = 1
LOWEST, HIGHEST = 0, 100  # what a judge may give a translation


@dataclass(frozen=True)
class Row:
    """A line that is judged.

    Attributes:
        line: number of the line in the source, from 1.
        document: id of its document; empty = the line is a document of its own.
        order: the systems of columns A, B, C, as indexes.
    """

    id: str
    line: int
    document: str
    order: tuple[int, ...]

    @property
    def unit(self) -> str:
        """The unit of sampling: the document, or the line."""
        return f"d{self.document}" if self.document else f"l{self.line}"


@dataclass(frozen=True)
class Key:
    """The key of a sheet."""

    systems: tuple[str, ...]
    source: str
    rows: tuple[Row, ...]

    def text(self) -> str:
        """Return the content of the file."""
        values: dict[str, Any] = {"nmt_judge": FORMAT, **asdict(self)}
        return json.dumps(seal(values), indent=1, ensure_ascii=False) + "\n"


def read_key(path: Path) -> Key:
    """Read a key.

    Raises:
        UserError: the file is missing, is not a key, or was changed.
    """
    try:
        values = json_object(read_text(path, LARGE))
        if values[SEAL] and unseal(values) and values.pop("nmt_judge") == FORMAT:
            rows = (Row(**{**row, "order": tuple(row["order"])}) for row in values.pop("rows"))
            return Key(**{**values, "systems": tuple(values["systems"])}, rows=tuple(rows))
    except FileNotFoundError:
        what = "no such file"
    except (ValueError, LookupError, TypeError, AttributeError):
        what = "is not a key of nmt-sheet"
    else:
        what = "was changed after nmt-sheet wrote it"
    fix = "give the .key.json file that nmt-sheet wrote next to the sheet"
    raise UserError(what, at=str(path), fix=fix)


def row_id(line: int, texts: Sequence[str]) -> str:
    """Return the id of a row, given its texts in the order of the columns.

    White space does not count: programs change it.
    """
    words = json.dumps([text.split() for text in texts])
    return f"{line}-{hashlib.sha256(words.encode()).hexdigest()[:10]}"


def read_documents(file: str, lines: int) -> list[str]:
    """Read the document id of each line, as ``sacrebleu --echo docid`` prints them for WMT.

    Args:
        file: one id per line; successive lines with the same id are a document.
        lines: of the source.

    Raises:
        UserError: the number of lines differs, a line is blank, or an id returns after another one.
    """
    ids = [line.strip() for line in read_lines(Path(file))]
    if len(ids) != lines:
        raise UserError(
            f"{quantity(len(ids), 'line')}, but the source has {lines:,}",
            at=file,
            fix="give one document id for each line of the source",
        )
    seen: set[str] = set()
    for number, (name, before) in enumerate(zip(ids, [None, *ids], strict=False), 1):
        if is_blank(name):
            raise UserError(
                "a blank line", at=f"{file}:{number}", fix="write the document id of the line"
            )
        if name != before and name in seen:
            raise UserError(
                f"document {name} continues after another one",
                at=f"{file}:{number}",
                fix="put the lines of a document next to each other, or use another id",
            )
        seen.add(name)
    return ids


def draw_rows(
    sources: Sequence[str],
    systems: Sequence[Sequence[str]],
    refs: Sequence[str],
    documents: Sequence[str],
    sample: int,
) -> list[tuple[Row, list[str]]]:
    """Draw documents at random until they have ``sample`` lines, and an order of the systems each.

    Without documents, each line is one. Lines with a blank source are left out. The rows are in the
    order of the text.

    Args:
        systems: translations of each line, by system.
        refs: reference of each line; empty = none.
        documents: document id of each line; empty = none.
        sample: number of lines; the last document may exceed it.

    Returns:
        The rows, with their texts in the order of the columns: source, reference, translations.
    """
    rng = Random(1)  # a killed command makes the same sheet again
    numbers = [number for number, source in enumerate(sources) if not is_blank(source)]
    groups = [list(group) for _, group in groupby(numbers, lambda n: documents[n : n + 1] or n)]
    chosen: list[tuple[list[int], list[int]]] = []
    count = 0
    for group in rng.sample(groups, len(groups)):
        if count >= sample:
            break
        count += len(group)
        chosen.append((group, rng.sample(range(len(systems)), len(systems))))
    rows = []
    for group, order in sorted(chosen):
        for number in group:
            texts = [sources[number], *refs[number : number + 1]]
            texts += [systems[system][number] for system in order]
            document = documents[number] if documents else ""
            row = Row(row_id(number + 1, texts), number + 1, document, tuple(order))
            rows.append((row, texts))
    return rows
