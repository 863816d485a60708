"""Tatoeba from weekly exports made here: sentences with authors, and links."""

import bz2
import json

import pytest

from data_prep.corpora import tatoeba
from nmt.cli.import_corpus import main


@pytest.fixture
def exports(tmp_path, monkeypatch):
    """Two hundred sentences with one translation, and a few odd links."""
    monkeypatch.setattr(tatoeba, "HELD_OUT", {"dev": 20, "test": 20})
    letters = "abcdefghijklmnopqrst"

    def text(number):
        return " ".join(letters[number // 20 % 20] + letters[number % 20] + c for c in "uvwxyz")

    dates = "2010-05-10 17:35:36\t2018-01-01 00:00:00"
    ara = [f"{i}\tara\tع{text(i)[::-1]}\tCM\t{dates}" for i in range(200)]
    eng = [f"{1000 + i}\teng\t{text(i)}\t\\N\t{dates}" for i in range(200)]
    eng += [f"5000\teng\tnobody  asked\tCK\t{dates}"]  # no link
    links = [f"{i}\t{1000 + i}" for i in range(200)] + ["0\t1001", "3\t9999"]
    folder = tmp_path / "exports"
    folder.mkdir()
    for name, rows in (
        ("ara_sentences_detailed.tsv.bz2", ara),
        ("eng_sentences_detailed.tsv.bz2", eng),
        ("ara-eng_links.tsv.bz2", links),
    ):
        (folder / name).write_bytes(bz2.compress(("\n".join(rows) + "\n").encode()))
    return folder


def run(exports, out, src="ar", tgt="en"):
    langs = ["--src-lang", src, "--tgt-lang", tgt]
    return main(["tatoeba", *langs, "--from", str(exports), "--output", str(out)])


def lines(path):
    return path.read_text("utf-8").splitlines()


def test_linked_sentences_are_pairs_with_their_authors(exports, tmp_path):
    out = tmp_path / "out"
    assert run(exports, out) == 0
    manifest = json.loads((out / "MANIFEST.json").read_text("utf-8"))
    assert manifest["dropped"]["a linked sentence is missing"] == {"count": 1, "first": "3-9999"}
    assert all(len(source["sha256"]) == 64 for source in manifest["sources"])
    for split in ("train", "dev", "test"):
        sides = [lines(out / f"{split}.{ending}") for ending in ("ar", "en", "credits")]
        assert len(sides[0]) == manifest["pairs"][split]
        for ar, en, credit in zip(*sides, strict=True):
            number, other = (int(part.split(" ")[0]) for part in credit.split("#")[1:])
            assert credit == f"tatoeba.org #{number} (CM) & #{other} (unknown)"
            assert other == number + 1000 or (number, other) == (0, 1001)
            assert (ar == f"ع{en[::-1]}") == (other == number + 1000)
    held = [set(lines(out / f"{split}.ar")) for split in ("train", "dev", "test")]
    assert not (held[0] & held[1] | held[0] & held[2] | held[1] & held[2])


def test_codes(exports, tmp_path, capsys):
    assert tatoeba.tatoeba_code("ar", None) == "ara"
    assert tatoeba.tatoeba_code("zh", None) == "cmn"
    assert tatoeba.tatoeba_code("sw", None) == "swh"
    assert tatoeba.tatoeba_code("toki", None) == "toki"
    [links, *_] = tatoeba.sources("ara", "eng")
    base = "https://downloads.tatoeba.org/exports/per_language"
    assert links.url == f"{base}/ara/ara-eng_links.tsv.bz2"
    assert run(exports, tmp_path / "out", src="arx") == 2
    assert "unknown language 'arx'; did you mean ara?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        *(
            (name, lambda data: bz2.compress(b"<html>404 not found</html>\n"), ":1: has 1 column")
            for name in ("ara-eng_links", "eng_sentences_detailed")
        ),
        ("eng_sentences_detailed", lambda data: data[:100], "damaged or truncated"),
        ("eng_sentences_detailed", lambda data: b"", "download it again"),
        ("eng_sentences_detailed", lambda data: b"<html>no page</html>", "download it again"),
    ],
)
def test_a_file_that_is_no_export(exports, tmp_path, capsys, name, change, message):
    path = exports / f"{name}.tsv.bz2"
    path.write_bytes(change(path.read_bytes()))
    assert run(exports, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert message in error
    assert not (tmp_path / "out").exists()
