"""Corpora that their publishers released as aligned files, one per side and split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from data_prep.common import Corpus, Request, check_request, finish
from data_prep.fetch import Source, check_folder, opened
from data_prep.languages import both
from data_prep.pairs import Drops, Pair, apply_filters, empty_side, one_line
from nmt.data.text import read_lines
from nmt.errors import UserError


@dataclass(frozen=True)
class Release:
    """A corpus of aligned files.

    Attributes:
        files: split -> language -> file; the same languages in each split.
        tree: what git calls a folder of all files, where the files have no hashes of their own.
        clean: applied to each line.
    """

    name: str
    files: Mapping[str, Mapping[str, Source]]
    tree: str = ""
    notes: list[str] = field(default_factory=list)
    clean: Callable[[str], str] = one_line

    def prepare(self, request: Request) -> None:
        """Fetch (or read from the folder ``local``), drop pairs with an empty side, write."""
        check_request(request)
        langs = both(request, next(iter(self.files.values())), self.name)
        sources = [sides[lang] for sides in self.files.values() for lang in langs]
        with opened(sources, request.local) as paths:
            if self.tree:
                check_folder(self.name, paths, self.tree)
            drops, rest = Drops(), iter(paths)
            splits = {
                split: drop_empty(aligned(next(rest), next(rest), split, self.clean), drops)
                for split in self.files
            }
            notes = [*self.notes, "Places are SPLIT:LINE of the released files."]
            finish(Corpus(self.name, splits, drops, sources, notes), request)


def aligned(src: Path, tgt: Path, split: str, clean: Callable[[str], str]) -> Iterator[Pair]:
    """Line pairs of two files.

    Raises:
        UserError: the files have unequal numbers of lines (names both counts).
    """
    sides = read_lines(src, clean=False), read_lines(tgt, clean=False)
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
