"""NTREX-128: a test set of news in 129 languages.

``nmt-import ntrex --src-lang gl --tgt-lang en -o data/ntrex-gl-en`` writes test.{gl,en}, 1,997
sentences of plain text, for an extra test set. There are no training pairs and no dev set.
Federmann et al. 2022, "NTREX-128 - News Test References for MT Evaluation of 128 Languages". Line n
of test.credits is the document of line n.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from data_prep.languages import match_pair
from data_prep.pairs import archive_errors, decode_lines, member_lines
from data_prep.remote import RemoteFile, check_tree, fetched
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import UserError

_COMMIT = "8561f6a622db9edad1217683e5c83daefd8bb2bf"
SOURCE = RemoteFile(
    what="NTREX-128",
    license="CC BY-SA 4.0",
    filename=f"{_COMMIT}.tar.gz",
    url=f"https://github.com/MicrosoftTranslator/NTREX/archive/{_COMMIT}.tar.gz",
)
FOLDER = "NTREX-128"
TREE = "a45964e468945383ac7007e047929f39d7b39d7a"  # git's id of the folder; archives have no hash
_FILE = re.compile(r"newstest2019-(?:src|ref)\.(\w+(?:-\w+)?)\.txt")
_NOTES = ["An evaluation set: train on none of it. The English side is the source of all others."]


def read_texts(archive: Path) -> dict[str, bytes]:
    """Return the text of each language by its code, such as glg, por-BR and srp_Cyrl.

    Raises:
        UserError: the archive is damaged, or its texts are not those of ``TREE``.
    """
    contents = {}
    with archive_errors(archive), tarfile.open(archive, "r:*") as tar:
        for info in tar:
            path = PurePosixPath(info.name)
            file = tar.extractfile(info) if path.parent.name == FOLDER else None
            if file is not None:
                contents[path.name] = file.read()
    check_tree(contents, TREE, SOURCE.what, str(archive))
    codes = {name: match[1] for name in contents if (match := _FILE.fullmatch(name))}
    # a script is part of the language here, and a region is not
    return {re.sub("-(?=[A-Z][a-z]{3})", "_", code): contents[name] for name, code in codes.items()}


def read_pairs(archive: Path, src: str, tgt: str) -> Iterator[Pair]:
    """Yield the pairs of two languages, as the user calls them, with their documents."""
    texts = read_texts(archive)
    langs = match_pair(src, tgt, texts, SOURCE.what)
    sides = [
        list(decode_lines(texts[lang].splitlines(keepends=True), f"{archive}:{lang}"))
        for lang in langs
    ]
    documents = list(member_lines(archive, "DOCUMENT_IDS.tsv"))
    if not len(sides[0]) == len(sides[1]) == len(documents):
        raise UserError(
            f"has {len(sides[0]):,} and {len(sides[1]):,} lines in {len(documents):,} lines of "
            "documents",
            at=str(archive),
            fix="use the archive that the publisher released",
        )
    for number, (one, other, document) in enumerate(zip(*sides, documents, strict=True), 1):
        yield Pair(one, other, f"test:{number}", document, document)


def prepare(request: Request) -> None:
    """Write the test set of a pair of languages."""
    with fetched([SOURCE], request.local, keep=True) as [archive]:
        name = f"ntrex-{request.src}-{request.tgt}"
        test = list(read_pairs(archive, request.src, request.tgt))
        write_corpus(Corpus(name, {"test": test}, Drops(), [SOURCE], _NOTES), request)
