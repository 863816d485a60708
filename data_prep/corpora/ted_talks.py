"""TED talks in 58 languages with English, Moses-tokenized.

``nmt-import ted_talks --src-lang gl --tgt-lang en -o data/gl-en``. The corpus of "When and
Why are Pre-trained Word Embeddings Useful for Neural Machine Translation?" (NAACL 2018), with its
splits. One archive of 336 MiB has all languages; it is downloaded once for all pairs. Any two
languages make a pair; "Transformers without Tears" uses gl, sk and ar to English, and en to he.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from data_prep.languages import match_pair
from data_prep.pairs import member_lines, one_line
from data_prep.remote import RemoteFile, fetched
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.lines import is_blank
from nmt.data.pair import Pair
from nmt.data.report import Drops

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
# A talk lacks this sentence in this language: the mark, with or without the tokenizer's spaces.
_MISSING = re.compile(r"_ ?_ ?NULL ?_ ?_")
# A target-language tag before the sentence, such as "__en__", from the publisher's scripts.
_TAG = re.compile(r"^ *_ ?_ ?[a-z]{2,3}(-[a-z]{2})? ?_ ?_ ")
_MEMBERS = {split: f"all_talks_{split}.tsv" for split in ("train", "dev", "test")}


def sentence(cell: str) -> str:
    """Return a cell's sentence without a tag, or "" if the talk lacks the sentence."""
    return "" if is_blank(cell) or _MISSING.search(cell) else _TAG.sub("", cell)


def read_split(archive: Path, split: str, request: Request, drops: Drops) -> Iterator[Pair]:
    """Yield the pairs of a split that have both sides; a pair's group is its talk.

    Training pairs get single spaces between words; sentences of dev and test are unaltered.
    """
    tidy = one_line if split == "train" else str
    rows = (line.split("\t") for line in member_lines(archive, _MEMBERS[split]))
    header = next(rows, [])
    langs = match_pair(request.src, request.tgt, header[1:], str(archive))
    columns = [header.index(lang, 1) for lang in langs]
    for number, row in enumerate(rows, 2):
        place = f"{split}:{number}"
        if len(row) != len(header):
            drops["row with another number of columns"].add(place)
            continue
        one, other = (tidy(sentence(row[column])) for column in columns)
        if one and other:
            yield Pair(one, other, place, row[0])
        elif one or other:
            drops["the talk lacks one side"].add(place)


def prepare(request: Request) -> None:
    """Write one language pair of the archive."""
    drops = Drops()
    with fetched([SOURCE], request.local) as [archive]:
        splits = {split: read_split(archive, split, request, drops) for split in _MEMBERS}
        name = f"ted-{request.src}-{request.tgt}"
        write_corpus(Corpus(name, splits, drops, [SOURCE], NOTES), request)
