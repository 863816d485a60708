"""A corpus: its files, their pairs of lines in the text form of the recipe, and pairs in memory.

The files of an entry may be Moses-tokenized or plain. If the recipe has the other form
(``data.tokenized``), the lines are converted when they are read.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import numpy as np

from nmt.data.corrections import read_corrections
from nmt.data.lines import OPENERS, Texts, find_side, is_blank, read_lines, require_line_feeds
from nmt.data.pair import Pair
from nmt.data.workers import in_chunks, map_chunks
from nmt.errors import UserError
from nmt.runtime.files import file_digest
from nmt.runtime.missing import missing_fix
from nmt.runtime.progress import progress_bar
from nmt.runtime.words import quantity
from nmt.text.tokenizer import Moses

if TYPE_CHECKING:
    from nmt.config.entries import CorpusEntry, Direction, HeldOutEntry
    from nmt.config.recipe import Recipe

Split: TypeAlias = Literal["dev", "test"]
# source file and target file; monolingual text, for a language model, has only the first
Sides: TypeAlias = tuple[Path, ...]
Result = TypeVar("Result")


# ---------------------------------------------------------------- files


@dataclass(frozen=True)
class Bitext:
    """The files of a corpus, and how their lines become sources and targets.

    The targets of monolingual text are empty.

    Attributes:
        name: short name for messages.
        sides: source file and target file; a table is both.
        direction: its languages and tags.
        tokenized: whether the files are Moses-tokenized.
        weight: of a training corpus.
        other_refs: files with further references of a dev or test set.
        table: whether one file has both sides: corrections.
    """

    name: str
    sides: Sides
    direction: Direction
    tokenized: bool = False
    weight: float = 1.0
    other_refs: tuple[Path, ...] = ()
    table: bool = False

    @property
    def langs(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.direction.langs

    @property
    def monolingual(self) -> bool:
        """Whether this is monolingual text, for a language model."""
        return len(self.sides) == 1

    def __str__(self) -> str:
        return ", ".join(dict.fromkeys(map(str, self.sides)))


def held_out_entries(recipe: Recipe, role: Split) -> dict[str, HeldOutEntry]:
    """Return the dev or test sets by name: ``dev``, or ``dev.NAME`` for each of several."""
    entries = recipe.data.dev if role == "dev" else recipe.data.test or []
    if len(entries) == 1:
        return {role: entries[0]}
    return {f"{role}.{entry.label(recipe)}": entry for entry in entries}


def missing_files(recipe: Recipe) -> list[str]:
    """Return the prefixes of corpora in the recipe's languages that lack a usable file."""
    langs = recipe.src, recipe.tgt or recipe.src
    return [
        entry.path
        for entries in recipe.data.entries.values()
        for entry in entries
        if not entry.table
        and entry.langs(recipe) == langs
        and any(isinstance(side, UserError) for side in _locate(entry, recipe))
    ]


def _locate(entry: CorpusEntry | HeldOutEntry, recipe: Recipe) -> list[Path | UserError]:
    """Return the file of each side of an entry, or why it cannot be used."""
    langs = entry.langs(recipe)
    if entry.table:
        path = entry.path
        if not recipe.translates:
            fix = "remove this entry of data.train"
            return [UserError("corrections are pairs, not monolingual text", at=path, fix=fix)]
        if not Path(path).is_file():
            return [UserError("is not a file", at=path, fix=missing_fix(path))]
        return [Path(path)] * 2
    sides: list[Path | UserError] = []
    for lang in langs if recipe.translates else langs[:1]:
        try:
            sides.append(find_side(entry.path, lang))
        except UserError as error:
            sides.append(error)
    return sides


@dataclass(frozen=True)
class RecipeFiles:
    """The files of all corpora of a recipe, and of its segmentation.

    Attributes:
        train: each training corpus; a corpus may occur twice.
        held_out: the dev and test sets by name, see ``held_out_entries``.
        segment: codes or model file that the recipe names.
        learn: the corpora to learn the segmentation from, or new pieces of it; empty = those of
            ``train``.
    """

    train: list[Bitext]
    held_out: dict[str, Bitext]
    segment: list[Path]
    learn: list[Bitext]

    @classmethod
    def of(cls, recipe: Recipe, adapting: bool = False) -> RecipeFiles:
        """Find the files; those of ``learn`` too if the segmentation of a parent is adapted.

        Raises:
            UserError: files are missing or not regular files; the error names all of them.
        """
        learn_from, segment_file = recipe.segment.learning_entries, recipe.segment.file
        if recipe.init.vocab != "new":  # the segmentation of the parent is learned already
            learn_from, segment_file = learn_from if adapting else [], None
        roles = {**recipe.data.entries, "learn": learn_from}
        located = {}
        for entry in itertools.chain.from_iterable(roles.values()):
            key = entry.path, entry.langs(recipe)
            if key not in located:
                located[key] = _locate(entry, recipe)
        problems = [s for sides in located.values() for s in sides if isinstance(s, UserError)]
        problems += [
            UserError("is not a file", at=file, fix=missing_fix(file, "other_refs"))
            for entry in (*recipe.data.dev, *(recipe.data.test or []))
            for file in entry.other_refs
            if not Path(file).is_file()
        ]
        if problems:
            first, *others = problems
            more = "".join(f"\n{error.at}: {error.what}" for error in others)
            raise UserError(first.what + more, at=first.at, fix=first.fix)

        def bitext(name: str, entry: CorpusEntry | HeldOutEntry) -> Bitext:
            sides = located[entry.path, entry.langs(recipe)]
            return Bitext(
                name,
                tuple(side for side in sides if isinstance(side, Path)),
                entry.direction(recipe),
                entry.is_tokenized(recipe.data),
                getattr(entry, "weight", 1.0),
                tuple(map(Path, getattr(entry, "other_refs", ()))),
                entry.table,
            )

        held_out = held_out_entries(recipe, "dev") | held_out_entries(recipe, "test")
        return cls(
            train=list(map(bitext, _short_names(recipe, held_out), recipe.data.train)),
            held_out={name: bitext(name, entry) for name, entry in held_out.items()},
            segment=[] if segment_file is None else [Path(segment_file)],
            learn=[bitext(entry.path, entry) for entry in learn_from],
        )

    def paths(self) -> list[Path]:
        """Return all files."""
        corpora = [*self.train, *self.held_out.values(), *self.learn]
        return [*(p for c in corpora for p in (*c.sides, *c.other_refs)), *self.segment]

    def hashes_by_role(self, digests: Mapping[Path, str]) -> dict[str, list[str]]:
        """Return the SHA-256 of the files of train, dev, test and segment; paths do not count."""
        roles: dict[str, list[Path]] = {
            "train": [path for corpus in self.train for path in corpus.sides],
            "dev": [],
            "test": [],
            "segment": [*self.segment, *(p for corpus in self.learn for p in corpus.sides)],
        }
        for name, corpus in self.held_out.items():
            roles[name.partition(".")[0]] += [*corpus.sides, *corpus.other_refs]
        return {role: [digests[path] for path in paths] for role, paths in roles.items()}

    def encoded_size(self) -> int:
        """Estimate the bytes that the encoded corpora take while they are written."""
        return sum(
            path.stat().st_size * (8 if path.suffix in OPENERS else 2)
            for path in {*self.paths()} - {*self.segment}
        )


def _short_names(recipe: Recipe, held_out: Mapping[str, HeldOutEntry]) -> list[str]:
    """Return the last parts of each training corpus's path, as many as make the names distinct.

    They also differ from the names of the dev and test sets. Where a path has corpora of several
    languages, the languages follow.
    """
    entries = recipe.data.train
    paths = [Path(entry.path).absolute().parts for entry in entries]
    length = 2 if any(parts[-1] in held_out for parts in paths) else 1
    while len({parts[-length:] for parts in paths}) < len(set(paths)):
        length += 1
    names = [str(Path(*parts[-length:])) for parts in paths]
    texts = {(entry.path, entry.langs(recipe)) for entry in entries}
    if len(texts) == len({path for path, _ in texts}):
        return names
    return [
        f"{name} ({'-'.join(entry.langs(recipe))})"
        for name, entry in zip(names, entries, strict=True)
    ]


class InputFiles:
    """Files that must not change while they are read several times.

    Raises:
        UserError: a file cannot be read.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._states = {path: self._state(path) for path in paths}

    def digests(self) -> dict[Path, str]:
        """Return the SHA-256 of each file's content."""
        return {path: self._read(file_digest, path, "check the file") for path in self._states}

    def require_unchanged(self) -> None:
        """Raise UserError if a file has changed since the start."""
        for path, state in self._states.items():
            if self._state(path) != state:
                raise UserError(
                    "changed while it was read, so nothing was prepared",
                    at=str(path),
                    fix="run the command again when the file is complete",
                )

    def _state(self, path: Path) -> tuple[int, int, int]:
        info = self._read(os.stat, path, "check the path")
        return info.st_ino, info.st_size, info.st_mtime_ns

    @staticmethod
    def _read(what: Callable[[Path], Result], path: Path, fix: str) -> Result:
        try:
            return what(path)
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", at=str(path), fix=fix) from error


# ---------------------------------------------------------------- pairs


def read_pairs(
    sides: Sides, normalized: Counter[str] | None = None, clean: bool = True
) -> Iterator[Texts]:
    """Yield the lines of both sides, as ``read_lines`` reads them.

    If there is only one file, targets are empty, and blank lines become empty. ``normalized``
    counts the lines with each kind of normalization.

    Raises:
        UserError: the files have different numbers of lines, or the line ends of old Macs.
    """
    sources, *targets = (read_lines(path, clean, normalized) for path in sides)
    pairs: Iterable[tuple[str | None, str | None]]
    if targets:
        pairs = itertools.zip_longest(sources, targets[0])
    else:
        pairs = (("" if is_blank(line) else line, "") for line in sources)
    count = 0
    for src, tgt in pairs:
        if src is None or tgt is None:
            raise _unequal(sides)
        count += 1
        yield src, tgt
    if count == 1:
        for path in sides:
            require_line_feeds(path)


def _unequal(sides: Sides) -> UserError:
    counts = [sum(1 for _ in read_lines(path)) for path in sides]
    for path, count in zip(sides, counts, strict=True):
        if count == 1:
            require_line_feeds(path)
    line = first_misaligned(zip(*(read_lines(path) for path in sides), strict=False))
    return UserError(
        f"has {quantity(counts[0], 'line')}, but {sides[1].name} has {counts[1]:,}"
        + (f"; the first pair that does not seem to match is line {line:,}" if line else ""),
        at=str(sides[0]),
        fix="line n of one file must be the translation of line n of the other; correct "
        "the files, or repeat an incomplete download",
    )


def first_misaligned(pairs: Iterable[Texts]) -> int | None:
    """Return the first line where one side is blank or much longer, or None.

    Files with different numbers of lines are probably misaligned from there on.
    """
    for number, (src, tgt) in enumerate(pairs, 1):
        short, long = sorted((len(src), len(tgt)))
        if is_blank(src) != is_blank(tgt) or long > 4 * short + 20:
            return number
    return None


def write_pairs(pairs: Iterable[Sequence[object]], src: Path, tgt: Path) -> int:
    """Write sources and targets, complete on the disk; return the number of pairs."""
    count = 0
    with (
        src.open("w", encoding="utf-8", newline="\n") as sources,
        tgt.open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for pair in pairs:
            count += 1
            sources.write(f"{pair[0]}\n")
            targets.write(f"{pair[1]}\n")
        for file in (sources, targets):
            file.flush()
            os.fsync(file.fileno())
    return count


class ConvertLines:
    """Convert the lines of a corpus to tokenized or plain text, as ``tokenized`` says.

    Tokenized text has escapes such as ``&apos;``.
    """

    def __init__(self, tokenized: bool, langs: tuple[str, str]) -> None:
        self._tokenized, self._langs = tokenized, langs
        self._moses = Moses(tokenized=not tokenized)

    def line(self, line: str, lang: str) -> str:
        """Return a line in the other form."""
        if self._tokenized:
            return " ".join(self._moses.tokenize(line, lang))
        return self._moses.detokenize(line, lang)

    def __call__(self, pairs: list[Pair]) -> list[Pair]:
        """Convert the pairs of a chunk."""
        src, tgt = self._langs
        return [
            p._replace(src=self.line(p.src, src), tgt=self.line(p.tgt, tgt), original=p[:2])
            for p in pairs
        ]


def pairs_in_form(
    corpus: Bitext, tokenized: bool, normalized: Counter[str] | None = None
) -> Iterator[Pair]:
    """Yield the pairs of a corpus, in the form that ``tokenized`` says; see ``read_pairs``.

    Worker processes convert a large corpus.
    """
    if corpus.table:
        lines = read_corrections(corpus.sides[0], corpus.langs)
    else:
        lines = read_pairs(corpus.sides, normalized)
    name = corpus.name
    pairs = (
        Pair(src, tgt, f"{name}:{number}", "", "", number)
        for number, (src, tgt) in enumerate(lines, 1)
    )
    if corpus.tokenized == tokenized:
        return pairs
    work = ConvertLines(tokenized, corpus.langs)
    return itertools.chain.from_iterable(map_chunks(work, in_chunks(pairs)))


def read_in_form(path: Path, lang: str, file_tokenized: bool, tokenized: bool) -> list[str]:
    """Return the lines of a side of a dev or test set in the form that ``tokenized`` says.

    Text that has it already stays as it is.
    """
    if file_tokenized == tokenized:
        return list(read_lines(path, clean=False))
    convert = ConvertLines(tokenized, (lang, lang))
    return [convert.line(line, lang) for line in read_lines(path)]


# ---------------------------------------------------------------- pairs in memory


@dataclass(frozen=True)
class Chunk:
    """Some pairs of a corpus, as UTF-8: a quarter of the memory of lists of strings.

    Attributes:
        numbers: [n] int32, their lines in the files of the corpus, from 1.
        src, tgt: n lines each, with LF between them.
    """

    corpus: Bitext
    numbers: np.ndarray
    src: bytes
    tgt: bytes

    @classmethod
    def of(
        cls, corpus: Bitext, pairs: Sequence[Texts], numbers: Sequence[int] | np.ndarray = ()
    ) -> Chunk:
        """Store pairs and the numbers of their lines; without numbers, these are 1, 2, 3 ..."""
        if not len(numbers):
            numbers = range(1, len(pairs) + 1)
        src, tgt = ("\n".join(pair[side] for pair in pairs).encode() for side in (0, 1))
        return cls(corpus, np.array(numbers, np.int32), src, tgt)

    def __len__(self) -> int:
        return len(self.numbers)

    def sides(self) -> tuple[list[str], list[str]]:
        """Return the sources and the targets."""
        return self.src.decode().split("\n"), self.tgt.decode().split("\n")

    def pairs(self) -> Iterator[Texts]:
        """Yield the pairs."""
        return zip(*self.sides(), strict=True)

    def repeated(self, copies: np.ndarray) -> Iterator[Chunk]:
        """Yield each pair as often as ``copies`` says: [n] int64."""
        pairs = list(self.pairs())
        for some in in_chunks(np.repeat(np.arange(len(self)), copies).tolist()):
            yield Chunk.of(self.corpus, [pairs[i] for i in some], self.numbers[some])


class TrainingText:
    """The training pairs of some corpora in memory, without those that are too long.

    Attributes:
        chunks: the pairs of each of ``corpora``.
        progress: show a bar on a terminal.
    """

    def __init__(self, progress: bool) -> None:
        self.corpora: list[Bitext] = []
        self.chunks: list[list[Chunk]] = []
        self.progress = progress

    def add(self, corpus: Bitext, pairs: Iterable[Pair]) -> None:
        """Store the pairs of the next corpus."""
        self.corpora.append(corpus)
        self.chunks.append(
            [
                Chunk.of(corpus, [p[:2] for p in some], [p.number for p in some])
                for some in in_chunks(pairs)
            ]
        )

    @property
    def sizes(self) -> list[int]:
        """Number of pairs of each corpus."""
        return [sum(map(len, chunks)) for chunks in self.chunks]

    def read(self, action: str, copies: np.ndarray | None = None) -> Iterator[Chunk]:
        """Yield the chunks of all corpora, under a progress bar with the title ``action``.

        ``copies``: [pairs] how often to yield each pair; None = once.
        """
        row = 0
        with progress_bar(action, "pairs", sum(self.sizes), self.progress) as bar:
            for chunk in itertools.chain.from_iterable(self.chunks):
                if copies is None:
                    yield chunk
                else:
                    yield from chunk.repeated(copies[row : row + len(chunk)])
                row += len(chunk)
                bar.update(len(chunk))

    def sample(self, action: str, step: int) -> Iterator[tuple[Bitext, Texts]]:
        """Yield every ``step``-th pair with its corpus, the first one first."""
        row = 0
        for chunk in self.read(action):
            for pair in list(chunk.pairs())[-row % step :: step]:
                yield chunk.corpus, pair
            row += len(chunk)
