"""Two kinds of public corpora: with the splits of their publishers, and split by us."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data_prep.languages import match_pair
from data_prep.pairs import clean_training_pairs, read_aligned
from data_prep.remote import RemoteFile, fetched
from data_prep.splits import hold_out
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import Rule, apply_rules

UNALTERED = "Lines of dev and test are as released, including blank sides and unusual spaces."


@dataclass(frozen=True)
class Release:
    """A corpus that its publisher released as aligned text files, one per side and split.

    Attributes:
        files: split -> language -> file; each split has the same languages.
        tree: git's id of a folder of all files, if the files have no hashes.
        restore: applied to each line of each split, to undo a mark that the publisher added.
    """

    name: str
    files: Mapping[str, Mapping[str, RemoteFile]]
    tree: str = ""
    notes: list[str] = field(default_factory=list)
    restore: Callable[[str], str] = str

    def prepare(self, request: Request) -> None:
        """Write the corpus. Dev and test keep each line; train loses pairs with a blank side."""
        available = next(iter(self.files.values()))
        langs = match_pair(request.src, request.tgt, available, self.name)
        sources = [sides[lang] for sides in self.files.values() for lang in langs]
        with fetched(sources, request.local, self.tree) as paths:
            drops, rest = Drops(), iter(paths)
            splits = {}
            for split in self.files:
                pairs = read_aligned(next(rest), next(rest), split, self.restore)
                splits[split] = clean_training_pairs(pairs, drops) if split == "train" else pairs
            notes = [*self.notes, UNALTERED, "Places are SPLIT:LINE of the released files."]
            write_corpus(Corpus(self.name, splits, drops, sources, notes), request)


@dataclass(frozen=True)
class Unsplit:
    """A corpus of two languages that its publisher did not split.

    Attributes:
        langs: source and target of the pairs that ``read`` yields; a request may swap them.
        read: downloaded files, drops -> pairs.
        filters: for all pairs.
        held_out: dev and test -> pairs before near-duplicates are dropped.
        held_out_filters: for dev and test alone.
    """

    name: str
    langs: tuple[str, str]
    files: Sequence[RemoteFile]
    read: Callable[[Sequence[Path], Drops], Iterable[Pair]]
    filters: Sequence[Rule]
    held_out: Mapping[str, int]
    held_out_filters: Sequence[Rule] = ()
    notes: list[str] = field(default_factory=list)

    def prepare(self, request: Request) -> None:
        """Download the files (or read them from ``local``), filter, split and write."""
        src, _ = match_pair(request.src, request.tgt, self.langs, self.name)
        drops = Drops()
        with fetched(self.files, request.local) as paths:
            pairs = list(apply_rules(self.read(paths, drops), self.filters, drops))
        if src != self.langs[0]:
            pairs = [pair.swapped() for pair in pairs]
        splits = hold_out(pairs, self.held_out, drops, self.held_out_filters)
        write_corpus(Corpus(self.name, splits, drops, self.files, self.notes), request)
