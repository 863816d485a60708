"""Parallel files: where the corpora of a recipe are, their pairs of lines, and their hashes."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from nmt.data.text import CR_FIX, OPENERS, Pair, find_side, is_blank, read_lines
from nmt.errors import UserError
from nmt.runtime.files import file_digest

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe

Sides: TypeAlias = tuple[Path, Path]  # source file and target file


def locate_sides(prefix: str, langs: Sequence[str]) -> list[Path | UserError]:
    """Return the file of each side of a corpus, or why it cannot be used."""
    sides: list[Path | UserError] = []
    for lang in langs:
        try:
            sides.append(find_side(prefix, lang))
        except UserError as error:
            sides.append(error)
    return sides


def missing_files(recipe: Recipe) -> list[str]:
    """Return the prefixes of the recipe's corpora that lack a usable file."""
    return [
        prefix
        for prefixes in _prefixes_by_role(recipe).values()
        for prefix in prefixes
        if any(isinstance(s, UserError) for s in locate_sides(prefix, (recipe.src, recipe.tgt)))
    ]


def _prefixes_by_role(recipe: Recipe) -> dict[str, list[str]]:
    data = recipe.data
    return {"train": data.train, "dev": [data.dev], "test": [data.test] if data.test else []}


@dataclass(frozen=True)
class CorpusFiles:
    """The files of a recipe.

    Attributes:
        train: source and target file of each training corpus; a corpus may occur twice.
        held_out: source and target file of "dev", and of "test" if the recipe has one.
        segment: codes or model file that the recipe names.
        names: short names of the training corpora, for messages.
    """

    train: list[Sides]
    held_out: dict[str, Sides]
    segment: list[Path]
    names: list[str]

    @classmethod
    def of(cls, recipe: Recipe) -> CorpusFiles:
        """Find the files.

        Raises:
            UserError: files are missing or not regular files; the error names all of them.
        """
        roles = _prefixes_by_role(recipe)
        prefixes = {prefix: None for prefixes in roles.values() for prefix in prefixes}
        located = {p: locate_sides(p, (recipe.src, recipe.tgt)) for p in prefixes}
        problems = [s for sides in located.values() for s in sides if isinstance(s, UserError)]
        if problems:
            first, *others = problems
            more = "".join(f"\n{error.at}: {error.what}" for error in others)
            raise UserError(first.what + more, at=first.at, fix=first.fix)
        found = {
            prefix: (src, tgt)
            for prefix, (src, tgt) in located.items()
            if isinstance(src, Path) and isinstance(tgt, Path)
        }
        given = [getattr(recipe.segment, key, "learn") for key in ("codes", "model")]
        if recipe.init.vocab == "parent":  # which has a copy of its codes
            given = []
        return cls(
            train=[found[prefix] for prefix in roles["train"]],
            held_out={name: found[roles[name][0]] for name in ("dev", "test") if roles[name]},
            segment=[Path(file) for file in given if file != "learn"],
            names=_short_names(roles["train"]),
        )

    def paths(self) -> list[Path]:
        """Return all files."""
        sides = [*self.train, *self.held_out.values()]
        return [*(path for pair in sides for path in pair), *self.segment]

    def hashes_by_role(self, digests: Mapping[Path, str]) -> dict[str, list[str]]:
        """Return the SHA-256 of each file of train, dev, test and segment, wherever it is."""
        roles = {
            "train": [path for sides in self.train for path in sides],
            "dev": self.held_out["dev"],
            "test": self.held_out.get("test", ()),
            "segment": self.segment,
        }
        return {role: [digests[path] for path in paths] for role, paths in roles.items()}

    def encoded_size(self) -> int:
        """Estimate the bytes that the encoded corpora take while they are written."""
        return sum(
            path.stat().st_size * (8 if path.suffix in OPENERS else 2)
            for path in {*self.paths()} - {*self.segment}
        )


def _short_names(prefixes: Sequence[str]) -> list[str]:
    """Return the last part of each prefix, or the complete prefixes where these are the same."""
    last = [Path(prefix).name for prefix in prefixes]
    return last if len(set(last)) == len(last) else list(prefixes)


class InputFiles:
    """Files that must not change while they are read several times."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Store the state of the files.

        Raises:
            UserError: a file is missing.
        """
        self._states = {path: self._state(path) for path in paths}

    def digests(self) -> dict[Path, str]:
        """Return the SHA-256 of each file's content."""
        return {path: self._digest(path) for path in self._states}

    def require_unchanged(self) -> None:
        """Raise UserError if a file has changed since the start."""
        for path, state in self._states.items():
            if self._state(path) != state:
                raise UserError(
                    "changed while it was read, so nothing was prepared",
                    at=str(path),
                    fix="run the command again when the file is complete",
                )

    @staticmethod
    def _digest(path: Path) -> str:
        try:
            return file_digest(path)
        except OSError as error:
            raise UserError(
                f"cannot be read: {error.strerror}", at=str(path), fix="check the file"
            ) from error

    @staticmethod
    def _state(path: Path) -> tuple[int, int, int]:
        try:
            found = os.stat(path)
        except OSError as error:
            raise UserError(
                f"cannot be read: {error.strerror}", at=str(path), fix="check the path"
            ) from error
        return found.st_ino, found.st_size, found.st_mtime_ns


def read_pairs(sides: Sides, normalized: Counter[str] | None = None) -> Iterator[Pair]:
    """Yield the cleaned lines of both sides.

    Args:
        normalized: counts the lines with each kind of normalization.

    Raises:
        UserError: the files have different numbers of lines, or a file has the line ends of old
            Macs.
    """
    counts = [0, 0]
    files = (read_lines(path, normalized=normalized) for path in sides)
    for src, tgt in itertools.zip_longest(*files):
        counts[0] += src is not None
        counts[1] += tgt is not None
        if src is not None and tgt is not None:
            yield src, tgt
    for path, count in zip(sides, counts, strict=True):
        if count == 1:
            _require_line_feeds(path)
    if counts[0] != counts[1]:
        line = first_misaligned(zip(*(read_lines(path) for path in sides), strict=False))
        raise UserError(
            f"has {counts[0]:,} lines, but {sides[1].name} has {counts[1]:,}"
            + (f"; the first pair that does not seem to match is line {line:,}" if line else ""),
            at=str(sides[0]),
            fix="line n of one file must be the translation of line n of the other",
        )


def _require_line_feeds(path: Path) -> None:
    """Raise UserError if the only line of a file has carriage returns inside."""
    inside = next(read_lines(path, clean=False)).count("\r")
    if inside:
        raise UserError(
            f"has one line with {inside:,} carriage returns inside: its lines end with CR, not LF",
            at=f"{path}:1",
            fix=CR_FIX.format(path),
        )


def first_misaligned(pairs: Iterable[Pair]) -> int | None:
    """Return the first line where one side is blank or much longer, or None.

    Two files with different numbers of lines may be misaligned from there on.
    """
    for number, (src, tgt) in enumerate(pairs, 1):
        if is_blank(src) != is_blank(tgt):
            return number
        short, long = sorted((len(src), len(tgt)))
        if long > 4 * short + 20:
            return number
    return None
