"""Corpora that their publishers released as aligned text files, one per side and split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from data_prep.languages import match_pair
from data_prep.pairs import Drops, clean_training_pairs, read_aligned
from data_prep.remote import RemoteFile, fetched
from data_prep.write import Corpus, Request, check_request, write_corpus

UNALTERED = "Lines of dev and test are as released, including blank sides and unusual spaces."


@dataclass(frozen=True)
class Release:
    """A corpus of aligned files that has splits.

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
        """Write the corpus. Dev and test keep each line; train loses pairs with an empty side."""
        check_request(request)
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
