"""Corpus files: where they are, their pairs of lines, and which of them train."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from tqdm import tqdm

from nmt.data.checks import SplitCheck, first_suspicious, reason_to_drop
from nmt.data.text import CR_FIX, Pair, find_side, read_lines
from nmt.errors import UserError

Sides: TypeAlias = tuple[Path, Path]


def locate_sides(prefix: str, langs: Sequence[str]) -> list[Path | UserError]:
    """The file of each side of a corpus, or what is wrong with it."""
    sides: list[Path | UserError] = []
    for lang in langs:
        try:
            sides.append(find_side(prefix, lang))
        except UserError as error:
            sides.append(error)
    return sides


def find_files(prefixes: Iterable[str], langs: Sequence[str]) -> dict[str, Sides]:
    """The source and target file of each prefix.

    Raises:
        UserError: some are missing or no regular files; all of them are named.
    """
    found = {prefix: locate_sides(prefix, langs) for prefix in prefixes}
    problems = [s for sides in found.values() for s in sides if isinstance(s, UserError)]
    if problems:
        first, *others = problems
        more = "".join(f"\n{error.at}: {error.what}" for error in others)
        raise UserError(first.what + more, at=first.at, fix=first.fix)
    return {p: (s, t) for p, (s, t) in found.items() if isinstance(s, Path) and isinstance(t, Path)}


class InputFiles:
    """Files that must stay as they are while they are read, pass after pass."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Remember the files' states.

        Raises:
            UserError: one of them is not there.
        """
        self._states = {path: self._state(path) for path in paths}

    def digests(self) -> dict[Path, str]:
        """Return the SHA-256 of each file's content."""
        return {path: self._digest(path) for path in self._states}

    @staticmethod
    def _digest(path: Path) -> str:
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise UserError(
                f"cannot be read: {error.strerror}", at=str(path), fix="check the file"
            ) from error
        return digest.hexdigest()

    def require_unchanged(self) -> None:
        """Raises UserError when a file is another one than at the start."""
        for path, state in self._states.items():
            if self._state(path) != state:
                raise UserError(
                    "changed while it was read; nothing of it is used",
                    at=str(path),
                    fix="start again when the file is complete",
                )

    @staticmethod
    def _state(path: Path) -> tuple[int, int, int]:
        try:
            found = os.stat(path)
        except OSError as error:
            raise UserError(
                f"cannot be read: {error.strerror}", at=str(path), fix="check the path"
            ) from error
        return found.st_ino, found.st_size, found.st_mtime_ns


def read_pairs(sides: Sides, found: Counter[str] | None = None) -> Iterator[Pair]:
    """Cleaned lines of both sides; ``found`` counts what was normalized.

    Raises:
        UserError: unequal numbers of lines, with both counts and the first suspicious line; or one
            line with the line ends of old Macs.
    """
    counts = [0, 0]
    for src, tgt in itertools.zip_longest(*(read_lines(path, normalized=found) for path in sides)):
        counts[0] += src is not None
        counts[1] += tgt is not None
        if src is not None and tgt is not None:
            yield src, tgt
    for path, count in zip(sides, counts, strict=True):
        if count == 1:
            _require_line_feeds(path)
    if counts[0] != counts[1]:
        line = first_suspicious(zip(*(read_lines(path) for path in sides), strict=False))
        raise UserError(
            f"{counts[0]:,} lines, but {sides[1].name} has {counts[1]:,}"
            + (f"; they may have come apart at line {line}" if line else ""),
            at=str(sides[0]),
            fix="line n of one file must be the translation of line n of the other",
        )


def _require_line_feeds(path: Path) -> None:
    """Raises UserError when the one line of a file has carriage returns inside."""
    inside = next(read_lines(path, clean=False)).count("\r")
    if inside:
        raise UserError(
            f"one line with {inside:,} carriage returns inside: lines end with CR alone",
            at=f"{path}:1",
            fix=CR_FIX.format(path),
        )


def check_split(name: str, sides: Sides, tokenized: bool) -> SplitCheck:
    """Look at all pairs of a split that is held out.

    Raises:
        UserError: there is no pair with text on both sides.
    """
    check = SplitCheck(tokenized=tokenized)
    for number, pair in enumerate(read_pairs(sides, check.normalized), 1):
        check.admit(*pair, f"{name}:{number}")
    if not check.kept:
        raise UserError(
            f"no pair with text on both sides ({check.drops() or 'the files are empty'})",
            at=f"data.{name} ({sides[0]}, {sides[1]})",
            fix="scores need a source and a reference",
        )
    return check


def _short(prefixes: Collection[str]) -> list[str]:
    """Names for places: the last part of each prefix, or all of it where two end alike."""
    last = [Path(prefix).name for prefix in prefixes]
    return last if len(set(last)) == len(last) else list(prefixes)


class TrainingText:
    """The training pairs that pass the filters, as often as they are asked for.

    Args:
        corpora: prefixes and their files; one that comes twice counts twice.
        check: counts what the first pass sees; later passes only filter.
        progress: show a bar on a terminal.
    """

    def __init__(
        self, corpora: Sequence[tuple[str, Sides]], check: SplitCheck, progress: bool
    ) -> None:
        self._corpora, self._check, self._progress = corpora, check, progress
        self._counted = False

    def pairs(self, doing: str) -> Iterator[Pair]:
        """One pass over the pairs; ``doing`` names it for the bar.

        Raises:
            UserError: in the first pass, when no pair is left.
        """
        counting, self._counted = not self._counted, True
        check = self._check
        bar = tqdm(desc=doing, unit=" pairs", leave=False, disable=None if self._progress else True)
        with bar:
            for name, sides in self._named():
                pairs = read_pairs(sides, check.normalized if counting else None)
                for number, pair in enumerate(pairs, 1):
                    bar.update()
                    if counting:
                        keep = check.admit(*pair, f"{name}:{number}")
                    else:
                        keep = reason_to_drop(*pair, check.limits) is None
                    if keep:
                        yield pair
        if counting:
            self.require_pairs()

    def require_pairs(self) -> None:
        """Raises UserError when no pair is left."""
        if not self._check.kept:
            raise UserError(
                f"no training pair is left ({self._check.drops() or 'the files are empty'})",
                at=f"data.train ({', '.join(str(src) for _, (src, _) in self._corpora)}, ...)",
                fix="check the files, data.max_len and data.max_pieces",
            )

    def places(self, rows: Sequence[int]) -> list[str]:
        """Return where the pairs are that ``pairs`` yields at these ascending places."""
        wanted, row = list(rows), 0
        found: list[str] = []
        for name, sides in self._named():
            for number, pair in enumerate(read_pairs(sides), 1):
                if len(found) == len(wanted):
                    return found
                if reason_to_drop(*pair, self._check.limits) is None:
                    if row == wanted[len(found)]:
                        found.append(f"{name}:{number}")
                    row += 1
        return found

    def _named(self) -> Iterator[tuple[str, Sides]]:
        names = _short([prefix for prefix, _ in self._corpora])
        for name, (_, sides) in zip(names, self._corpora, strict=True):
            yield name, sides
