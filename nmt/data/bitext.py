"""Parallel files: where the corpora of a recipe are, their pairs of lines, and their hashes."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from nmt.data.text import (
    OPENERS,
    Pair,
    find_side,
    is_blank,
    quantity,
    read_lines,
    require_line_feeds,
)
from nmt.errors import UserError
from nmt.runtime.files import file_digest
from nmt.runtime.missing import missing_fix

if TYPE_CHECKING:
    from nmt.config.recipe import CorpusEntry, HeldOutEntry, Recipe

Split: TypeAlias = Literal["dev", "test"]
# source file and target file; text of one language, for a language model, has only the first
Sides: TypeAlias = tuple[Path, ...]


def locate_sides(prefix: str, langs: Sequence[str]) -> list[Path | UserError]:
    """Return the file of each side of a corpus, or why it cannot be used."""
    sides: list[Path | UserError] = []
    for lang in langs:
        try:
            sides.append(find_side(prefix, lang))
        except UserError as error:
            sides.append(error)
    return sides


@dataclass(frozen=True)
class Bitext:
    """The files of a corpus, and how their lines become sources and targets.

    The targets of text of one language are empty.

    Attributes:
        name: short name for messages.
        sides: source file and target file.
        langs: source and target language.
        tag: of the sources; None = none.
        tokenized: whether the files are Moses-tokenized.
        weight: of a training corpus.
        other_refs: files with further references of a dev or test set.
    """

    name: str
    sides: Sides
    langs: tuple[str, str]
    tag: str | None
    tokenized: bool = False
    weight: float = 1.0
    other_refs: tuple[Path, ...] = ()

    @property
    def monolingual(self) -> bool:
        """Whether this is text of one language, for a language model."""
        return len(self.sides) == 1

    def __str__(self) -> str:
        return ", ".join(map(str, self.sides))


def missing_files(recipe: Recipe) -> list[str]:
    """Return the prefixes of the recipe's corpora in its own languages that lack a usable file."""
    langs = recipe.src, recipe.tgt or recipe.src
    suffixes = _suffixes(recipe, langs)
    return [
        entry.path
        for entries in recipe.data.entries.values()
        for entry in entries
        if entry.langs(recipe) == langs
        and any(isinstance(s, UserError) for s in locate_sides(entry.path, suffixes))
    ]


def _suffixes(recipe: Recipe, langs: tuple[str, str]) -> tuple[str, ...]:
    """Return the languages that a corpus has files of; a language model reads only the first."""
    return langs if recipe.translates else langs[:1]


def held_out_entries(recipe: Recipe, role: Split) -> dict[str, HeldOutEntry]:
    """Return the dev or test sets by name: ``dev``, or ``dev.NAME`` for each of several."""
    entries = recipe.data.dev if role == "dev" else recipe.data.test or []
    if len(entries) == 1:
        return {role: entries[0]}
    return {f"{role}.{entry.label(recipe)}": entry for entry in entries}


@dataclass(frozen=True)
class CorpusFiles:
    """The files of a recipe.

    Attributes:
        train: each training corpus; a corpus may occur twice.
        held_out: the dev and test sets by name: "dev" and "test", or "dev.NAME" for each of
            several.
        segment: codes or model file that the recipe names.
        learn: the corpora to learn the segmentation from; empty = those of ``train``.
    """

    train: list[Bitext]
    held_out: dict[str, Bitext]
    segment: list[Path]
    learn: list[Bitext]

    @classmethod
    def of(cls, recipe: Recipe) -> CorpusFiles:
        """Find the files.

        Raises:
            UserError: files are missing or not regular files; the error names all of them.
        """
        learn_from, segment_file = recipe.segment.learning_entries, recipe.segment.file
        if recipe.init.vocab == "parent":  # whose segmentation is learned already
            learn_from, segment_file = [], None
        roles = {**recipe.data.entries, "learn": learn_from}
        keys = {(e.path, e.langs(recipe)): None for entries in roles.values() for e in entries}
        located = {
            (path, langs): locate_sides(path, _suffixes(recipe, langs)) for path, langs in keys
        }
        problems = [s for sides in located.values() for s in sides if isinstance(s, UserError)]
        for entries in (recipe.data.dev, recipe.data.test or []):
            problems += [
                UserError("is not a file", at=file, fix=missing_fix(file, "other_refs"))
                for entry in entries
                for file in entry.other_refs
                if not Path(file).is_file()
            ]
        if problems:
            first, *others = problems
            more = "".join(f"\n{error.at}: {error.what}" for error in others)
            raise UserError(first.what + more, at=first.at, fix=first.fix)

        def bitext(name: str, entry: CorpusEntry | HeldOutEntry) -> Bitext:
            found = located[entry.path, entry.langs(recipe)]
            sides = tuple(side for side in found if isinstance(side, Path))
            return Bitext(
                name,
                sides,
                entry.langs(recipe),
                entry.tag,
                entry.is_tokenized(recipe.data),
                getattr(entry, "weight", 1.0),
                tuple(map(Path, getattr(entry, "other_refs", ()))),
            )

        return cls(
            train=list(map(bitext, _short_names(recipe), recipe.data.train)),
            held_out={
                name: bitext(name, entry)
                for role in ("dev", "test")
                for name, entry in held_out_entries(recipe, role).items()
            },
            segment=[] if segment_file is None else [Path(segment_file)],
            learn=[bitext(entry.path, entry) for entry in learn_from],
        )

    def paths(self) -> list[Path]:
        """Return all files."""
        corpora = [*self.train, *self.held_out.values(), *self.learn]
        return [*(p for c in corpora for p in (*c.sides, *c.other_refs)), *self.segment]

    def hashes_by_role(self, digests: Mapping[Path, str]) -> dict[str, list[str]]:
        """Return the SHA-256 of each file of train, dev, test and segment, wherever it is."""

        def held_out(role: str) -> list[Path]:
            texts = [t for name, t in self.held_out.items() if name.partition(".")[0] == role]
            return [path for t in texts for path in (*t.sides, *t.other_refs)]

        roles = {
            "train": [path for text in self.train for path in text.sides],
            "dev": held_out("dev"),
            "test": held_out("test"),
            "segment": [*self.segment, *(p for text in self.learn for p in text.sides)],
        }
        return {role: [digests[path] for path in paths] for role, paths in roles.items()}

    def encoded_size(self) -> int:
        """Estimate the bytes that the encoded corpora take while they are written."""
        return sum(
            path.stat().st_size * (8 if path.suffix in OPENERS else 2)
            for path in {*self.paths()} - {*self.segment}
        )


def _short_names(recipe: Recipe) -> list[str]:
    """Return the last parts of the path of each training corpus, as many as tell them apart.

    They also differ from the names of the dev and test sets. Where a path has corpora of several
    languages, the languages follow.
    """
    entries = recipe.data.train
    held_out = {**held_out_entries(recipe, "dev"), **held_out_entries(recipe, "test")}
    paths = [Path(entry.path).absolute().parts for entry in entries]
    length = 2 if any(parts[-1] in held_out for parts in paths) else 1
    while len({parts[-length:] for parts in paths}) < len(set(paths)):
        length += 1
    names = [str(Path(*parts[-length:])) for parts in paths]
    langs = {entry.path: entry.langs(recipe) for entry in entries}
    if all(entry.langs(recipe) == langs[entry.path] for entry in entries):
        return names
    return [
        f"{name} ({'-'.join(entry.langs(recipe))})"
        for name, entry in zip(names, entries, strict=True)
    ]


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

    If there is only one file, targets are empty, and blank lines become empty.

    Args:
        normalized: counts the lines with each kind of normalization.

    Raises:
        UserError: the files have different numbers of lines, or a file has the line ends of old
            Macs.
    """
    counts = [0, 0]
    files = (read_lines(path, normalized=normalized) for path in sides)
    if len(sides) == 1:
        for number, (line,) in enumerate(zip(*files, strict=True), 1):
            counts[0] = number
            yield "" if is_blank(line) else line, ""
        if counts[0] == 1:
            require_line_feeds(sides[0])
        return
    for src, tgt in itertools.zip_longest(*files):
        counts[0] += src is not None
        counts[1] += tgt is not None
        if src is not None and tgt is not None:
            yield src, tgt
    for path, count in zip(sides, counts, strict=True):
        if count == 1:
            require_line_feeds(path)
    if counts[0] != counts[1]:
        line = first_misaligned(zip(*(read_lines(path) for path in sides), strict=False))
        raise UserError(
            f"has {quantity(counts[0], 'line')}, but {sides[1].name} has {counts[1]:,}"
            + (f"; the first pair that does not seem to match is line {line:,}" if line else ""),
            at=str(sides[0]),
            fix="line n of one file must be the translation of line n of the other",
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
