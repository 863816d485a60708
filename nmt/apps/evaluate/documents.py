"""Score documents: the sentences of each document as one text (d-BLEU, Liu et al. 2020).

Liu et al. (mBART, https://aclanthology.org/2020.tacl-1.47, section 4) match n-grams over a
complete document, so a translation may join or split sentences. WMT names the documents of a test
set by one document id for each line, as ``sacrebleu --echo docid`` prints them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from nmt.data.text import is_blank, quantity, read_lines
from nmt.errors import UserError

DOCUMENT_METRICS = ("bleu", "chrf", "chrf++")
"""Metrics that are computed on documents. TER would take hours on lines of a thousand words."""


def read_documents(file: str, lines: int) -> list[str]:
    """Read the document id of each line.

    Args:
        file: one id per line; successive lines with the same id are a document.
        lines: of the reference.

    Raises:
        UserError: the number of lines differs, a line is blank, or an id returns after another one.
    """
    ids = [line.strip() for line in read_lines(Path(file))]
    if len(ids) != lines:
        raise UserError(
            f"{quantity(len(ids), 'line')}, but the reference has {lines:,}",
            at=file,
            fix="give one document id for each line of the reference",
        )
    seen: set[str] = set()
    for number, (one, before) in enumerate(zip(ids, [None, *ids], strict=False), 1):
        if is_blank(one):
            raise UserError(
                "a blank line", at=f"{file}:{number}", fix="write the document id of the line"
            )
        if one != before and one in seen:
            raise UserError(
                f"document {one} continues after another one",
                at=f"{file}:{number}",
                fix="put the lines of a document next to each other, or use another id",
            )
        seen.add(one)
    return ids


def join_documents(lines: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Return one line per document: its lines, joined by spaces; blank lines add nothing."""
    pairs = zip(ids, lines, strict=True)
    return [
        " ".join(line.strip() for _, line in group if line.strip())
        for _, group in itertools.groupby(pairs, key=lambda pair: pair[0])
    ]
