"""Corpora that their publishers released as aligned files, one per side and split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from data_prep.common import Corpus, Request, check_request, finish
from data_prep.fetch import RemoteFile, check_folder, opened
from data_prep.languages import both
from data_prep.pairs import Drops, Pair, apply_filters, empty_side, one_line
from nmt.data.text import read_lines
from nmt.errors import UserError

UNALTERED = "Lines of dev and test are as released, blank sides and odd spaces too."


@dataclass(frozen=True)
class Release:
    """A corpus of aligned files.

    Attributes:
        files: split -> language -> file; the same languages in each split.
        tree: what git calls a folder of all files, where the files have no hashes of their own.
        restore: applied to each line of all splits: it undoes a mark of the publisher's.
    """

    name: str
    files: Mapping[str, Mapping[str, RemoteFile]]
    tree: str = ""
    notes: list[str] = field(default_factory=list)
    restore: Callable[[str], str] = str

    def prepare(self, request: Request) -> None:
        """Fetch (or read from the folder ``local``) and write.

        Training pairs with an empty side are dropped; dev and test keep each line as it is.
        """
        check_request(request)
        langs = both(request, next(iter(self.files.values())), self.name)
        sources = [sides[lang] for sides in self.files.values() for lang in langs]
        with opened(sources, request.local) as paths:
            if self.tree:
                check_folder(self.name, paths, self.tree)
            drops, rest = Drops(), iter(paths)
            splits = {}
            for split in self.files:
                pairs = aligned(next(rest), next(rest), split, self.restore)
                splits[split] = drop_empty(pairs, drops) if split == "train" else pairs
            notes = [*self.notes, UNALTERED, "Places are SPLIT:LINE of the released files."]
            finish(Corpus(self.name, splits, drops, sources, notes), request)


def aligned(
    src: Path, tgt: Path, split: str, restore: Callable[[str], str] = str
) -> Iterator[Pair]:
    """Yield the line pairs of two files, without line ends and byte-order mark.

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
        yield Pair(restore(one), restore(other), f"{split}:{number}")


def drop_empty(pairs: Iterable[Pair], drops: Drops) -> Iterator[Pair]:
    """Yield training pairs, words one space apart, less those with an empty side."""
    tidy = (pair._replace(src=one_line(pair.src), tgt=one_line(pair.tgt)) for pair in pairs)
    return apply_filters(tidy, [empty_side()], drops)
