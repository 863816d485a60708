"""FLORES-200: dev and test sets in 204 languages.

``nmt-import flores --src-lang gl --tgt-lang en -o data/flores-gl-en`` writes dev.{gl,en} (997
sentences) and test.{gl,en} (the 1,012 of devtest), as plain text, for an extra test set. There are
no training pairs. A language in two scripts needs the corpus's own code, such as zho_Hans.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from data_prep.languages import match_pair
from data_prep.pairs import member_lines, member_names
from data_prep.remote import RemoteFile, fetched
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.pair import Pair
from nmt.data.report import Drops

SOURCE = RemoteFile(
    what="FLORES-200",
    license="CC BY-SA 4.0",
    filename="flores200_dataset.tar.gz",
    url="https://dl.fbaipublicfiles.com/nllb/flores200_dataset.tar.gz",
    sha256="b8b0b76783024b85797e5cc75064eb83fc5288b41e9654dabc7be6ae944011f6",
    size=25_585_843,
)
_SPLITS = {"dev": "dev", "test": "devtest"}
_NOTES = ["An evaluation set: train on none of it. All languages are line-aligned with each other."]


def read_split(archive: Path, split: str, src: str, tgt: str) -> Iterator[Pair]:
    """Yield the pairs of a split, unaltered. FLORES has no empty lines."""
    name = _SPLITS[split]
    sides = (member_lines(archive, f"{name}/{lang}.{name}") for lang in (src, tgt))
    for number, (one, other) in enumerate(zip(*sides, strict=True), 1):
        yield Pair(one, other, f"{split}:{number}")


def prepare(request: Request) -> None:
    """Write dev and test of a pair of languages."""
    with fetched([SOURCE], request.local) as [archive]:
        files = map(PurePosixPath, member_names(archive))
        available = {path.stem for path in files if path.suffix == ".dev"}
        langs = match_pair(request.src, request.tgt, available, "FLORES-200")
        splits = {split: read_split(archive, split, *langs) for split in _SPLITS}
        name = f"flores-{request.src}-{request.tgt}"
        write_corpus(Corpus(name, splits, Drops(), [SOURCE], _NOTES), request)
