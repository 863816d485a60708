"""Corpora that their publishers released as aligned files, one per side and split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from data_prep.common import Corpus, check_out, finish
from data_prep.fetch import Source, opened
from data_prep.pairs import Drops, Pair, apply_filters, empty_side, one_line
from data_prep.reading import text_lines
from nmt.errors import UserError


@dataclass(frozen=True)
class Release:
    """A corpus, its files by split, and how its lines are cleaned."""

    name: str
    src: str
    tgt: str
    files: dict[str, tuple[Source, Source]]
    notes: list[str] = field(default_factory=list)
    clean: Callable[[str], str] = one_line


def aligned(src: Path, tgt: Path, split: str, clean: Callable[[str], str]) -> Iterator[Pair]:
    """Line pairs of two files.

    Raises:
        UserError: the files have unequal numbers of lines (names both counts).
    """
    sides = text_lines(src), text_lines(tgt)
    for number, (one, other) in enumerate(zip_longest(*sides), 1):
        if one is None or other is None:
            counts = [
                number - (side is None) + sum(1 for _ in rest)
                for side, rest in zip((one, other), sides, strict=True)
            ]
            raise UserError(
                f"{src.name} has {counts[0]:,} lines and {tgt.name} has {counts[1]:,}",
                at=str(src.parent),
                fix="fetch both again, or find the line that one of them lacks",
            )
        yield Pair(clean(one), clean(other), f"{split}:{number}")


def drop_empty(pairs: Iterable[Pair], drops: Drops) -> Iterator[Pair]:
    """Pairs less those with an empty side."""
    return apply_filters(pairs, [empty_side()], drops)


def prepare_release(
    release: Release, out: Path, force: bool = False, local: Path | None = None
) -> None:
    """Fetch (or read from the folder ``local``), drop pairs with an empty side, write."""
    check_out(out, force)
    drops = Drops()
    sources = [source for sides in release.files.values() for source in sides]
    with opened(sources, local) as paths:
        sides = iter(paths)
        splits = {
            split: drop_empty(aligned(next(sides), next(sides), split, release.clean), drops)
            for split in release.files
        }
        notes = [*release.notes, "Places are SPLIT:LINE of the released files."]
        corpus = Corpus(release.name, release.src, release.tgt, splits, drops, sources, notes)
        finish(corpus, out, force)
