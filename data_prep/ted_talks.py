"""The TED talks corpus of Qi et al. 2018: 58 languages with English, Moses-tokenized.

``python -m data_prep.ted_talks --src gl --tgt en --out data/gl-en``. "When and Why are Pre-trained
Word Embeddings Useful for Neural Machine Translation?", NAACL 2018. One archive of 336 MB has all
languages: fetch it once and give it by ``--from`` for further pairs. Splits are its own. Any two of
its languages make a pair; gl, sk and ar to English and English to he are those of "Transformers
without Tears".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from data_prep.common import Corpus, Request, check_request, command, finish
from data_prep.fetch import RemoteFile, opened
from data_prep.languages import both
from data_prep.pairs import Drops, Pair, one_line
from data_prep.reading import member_lines
from nmt.data.text import is_blank

SOURCE = RemoteFile(
    what="TED talks in 58 languages (Qi et al. 2018)",
    license="CC BY-NC-ND 4.0 (TED)",
    filename="ted_talks.tar.gz",
    url="http://phontron.com/data/ted_talks.tar.gz",
    size=352_222_045,
)
NOTES = [
    "Text is Moses-tokenized (&apos; and &quot; are escapes): set data.tokenized: true.",
    "Places are line numbers of all_talks_*.tsv; rows that lack both sides are not counted.",
]
# The mark of a sentence that a talk lacks in this language, as it is and as the tokenizer left it.
_MISSING = re.compile(r"_ ?_ ?NULL ?_ ?_")
# A target-language tag in front, such as "__en__", that the publisher's scripts put there.
_TAG = re.compile(r"^ *_ ?_ ?[a-z]{2,3}(-[a-z]{2})? ?_ ?_ ")
_MEMBERS = {split: f"all_talks_{split}.tsv" for split in ("train", "dev", "test")}


def sentence(cell: str) -> str:
    """Return a cell's sentence as it is, without a tag; empty where the talk lacks it."""
    return "" if is_blank(cell) or _MISSING.search(cell) else _TAG.sub("", cell)


def read_split(archive: Path, split: str, request: Request, drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of a split that have both sides; a pair's group is its talk.

    Words of training pairs come one space apart; dev and test keep each sentence as it is.
    """
    tidy = one_line if split == "train" else str
    rows = (line.split("\t") for line in member_lines(archive, _MEMBERS[split]))
    header = next(rows, [])
    columns = [header.index(lang, 1) for lang in both(request, header[1:], str(archive))]
    for number, row in enumerate(rows, 2):
        place = f"{split}:{number}"
        if len(row) != len(header):
            drops.add("row with another number of columns", place)
            continue
        one, other = (tidy(sentence(row[column])) for column in columns)
        if one and other:
            yield Pair(one, other, place, row[0])
        elif one or other:
            drops.add("the talk lacks one side", place)


def prepare(request: Request) -> None:
    """Write one language pair of the archive."""
    check_request(request)
    drops = Drops()
    with opened([SOURCE], request.local) as [archive]:
        splits = {split: read_split(archive, split, request, drops) for split in _MEMBERS}
        name = f"ted-{request.src}-{request.tgt}"
        finish(Corpus(name, splits, drops, [SOURCE], NOTES), request)


main = command(prepare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
