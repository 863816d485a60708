"""Glossaries: terms and their translations, one per line, separated by a tab.

A source term may have words that end with ``*``, each of which stands for all words that begin so.
Rows with the same source term are alternatives. ``nmt.decoding.glossary`` finds them in a line.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from nmt.data.lines import Texts, clean_line, is_blank, read_lines
from nmt.errors import UserError
from nmt.runtime.words import quantity
from nmt.text.letters import compared

LONGEST_TERM = 200  # characters
STAR = "*"
_SPACE_SIGN = "\u2581"

Term: TypeAlias = Texts  # source term, target term


def read_glossary(path: Path) -> list[Term]:
    """Read a glossary: source term, tab, target term, and optionally a tab and a note.

    Blank lines and rows that occur twice do not count.

    Raises:
        UserError: the file cannot be read as UTF-8 text, has no term, or a line is not a term.
    """
    terms: dict[Term, None] = {}
    for number, line in enumerate(read_lines(path, clean=False), 1):
        if is_blank(line):
            continue
        cells = [clean_line(cell).strip() for cell in line.split("\t")]
        if len(cells) not in (2, 3):
            raise UserError(
                f"{quantity(len(cells), 'column')}; a glossary has 2 or 3: source term, target "
                "term, note",
                at=f"{path}:{number}",
                fix="put one tab between the columns",
            )
        if problem := term_problem(*cells[:2]):
            raise UserError(problem, at=f"{path}:{number}", fix="correct or delete this line")
        terms[cells[0], cells[1]] = None
    if not terms:
        raise UserError(
            "the glossary has no term",
            at=str(path),
            fix="write a term a line: source term, tab, target term",
        )
    return list(terms)


def term_problem(source: str, target: str) -> str:
    """Return an error message if two texts cannot be a term, else an empty string."""
    for side, text in (("source", compared(source).text), ("target", target)):
        if is_blank(text):
            return f"the {side} term is blank"
        if len(text) > LONGEST_TERM:
            size = f"{len(text):,} characters, at most {LONGEST_TERM} are allowed"
            return f"the {side} term has {size}"
    beginnings = (word.strip(STAR) for word in source.split() if word.endswith(STAR))
    if any(is_blank(compared(beginning).text) for beginning in beginnings):
        return f"{STAR} stands alone; it is allowed after the beginning of a word"
    if _SPACE_SIGN in target:
        return "the target term contains U+2581, which SentencePiece uses for a space"
    return ""
