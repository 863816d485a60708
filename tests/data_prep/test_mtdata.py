"""Corpora by IDs of mtdata, from a server of this machine with files in the real formats."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from data_prep.corpora import mtdata
from data_prep.download import obtain_corpus
from nmt.cli.import_corpus import main
from nmt.config.load import load_recipe
from nmt.data.corpus_manifest import licenses_of
from nmt.errors import MachineError, UserError
from nmt.runtime.files import human_bytes
from tests.data_prep.archives import tarred, zipped

pytest.importorskip("mtdata")
LANGS = ["--src-lang", "gl", "--tgt-lang", "en"]


def lines(lang: str, count: int, first: int = 0) -> bytes:
    return "".join(
        f"{lang} {'abcdefghij'[n % 10] * (n + 3)} {n} .\n" for n in range(first, first + count)
    ).encode()


TMX = """<?xml version="1.0"?><tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en"><seg>one &amp; two</seg></tuv>
<tuv xml:lang="gl"><seg>un e dous</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>three</seg></tuv></tu>
</body></tmx>"""
SGM = """<{kind}set setid="x" srclang="any"><doc docid="d"><p>
<seg id="1">{lang} one</seg>
<seg id="2">{lang} two</seg>
</p></doc></{kind}set>"""


def record(did: str, url: str, ext: str, **keys: object) -> dict[str, object]:
    return {"did": did, "url": url, "ext": ext, **keys}


@pytest.fixture
def index(server, monkeypatch, tmp_path):
    """Files as OPUS, WikiMatrix, Tilde, WMT and FLORES have them, and their records."""
    moses = {
        "README": b"x", "LICENSE": b"CC BY 2.0\nFrance",
        "t.en-gl.en": lines("en", 90), "t.en-gl.gl": lines("gl", 90),
    }  # fmt: skip
    tsv = b"1.1\tone\tun\n1.0\ttwo\n0.9\tb\xffd\tmal\n0.9\tthree\ttres\n"
    news = {
        f"dev/n-{kind}.{lang}.sgm": SGM.format(kind=kind, lang=lang).encode()
        for kind, lang in (("src", "en"), ("ref", "gl"))
    }
    flores = {
        f"./flores/dev/{name}.dev": lines(lang, 4, 200)
        for name, lang in (("eng_Latn", "en"), ("glg_Latn", "gl"))
    }
    records = [
        record("OPUS-tatoeba-v2-eng-glg", server.add("/moses/en-gl.txt.zip", zipped(moses)), "zip",
               in_paths=["*.en", "*.gl"], in_ext="txt", cite=["tiedemann2012parallel"],
               is_archive=True),
        record("Facebook-wikimatrix-1-eng-glg", server.add("/x.tsv.gz", gzip.compress(tsv)),
               "tsv.gz", cols=[1, 2]),
        record("Tilde-eesc-1-eng-glg", server.add("/e.tmx.gz", gzip.compress(TMX.encode())),
               "tmx.gz"),
        record("Statmt-news-1-eng-glg", server.add("/dev.tgz", tarred(news)), "tgz", in_ext="sgm",
               in_paths=list(news), is_archive=True),
        record("Flores-flores200_dev-1-eng_Latn-glg_Latn", server.add("/flores", tarred(flores)),
               "tar.gz", in_ext="txt", in_paths=[name[2:] for name in flores], is_archive=True),
        record("HF-x-1-eng-glg", "https://huggingface.co/datasets/x", "hfds", in_ext="hfds"),
        record("OPUS-books-v1-eng-spa", "http://127.0.0.1:9/b.zip", "zip"),
    ]  # fmt: skip
    path = tmp_path / "index.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    monkeypatch.setattr(mtdata, "index_file", lambda: path)
    return server


def test_without_an_id_the_corpora_of_the_languages_are_listed(index, capsys):
    assert main(["mtdata", *LANGS]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["ID", "CITE"]
    assert [line.split()[0] for line in out[1:]] == [
        "Facebook-wikimatrix-1-eng-glg", "Flores-flores200_dev-1-eng_Latn-glg_Latn",
        "OPUS-tatoeba-v2-eng-glg", "Statmt-news-1-eng-glg", "Tilde-eesc-1-eng-glg",
    ]  # fmt: skip
    assert out[3].split() == ["OPUS-tatoeba-v2-eng-glg", "tiedemann2012parallel"]


def test_the_servers_say_the_sizes(index, capsys):
    index.add("/x.tsv.gz", (404, b"", 9))
    index.add("/e.tmx.gz", (200, b"", 2_500_000))
    assert main(["mtdata", *LANGS, "--sizes"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["ID", "DOWNLOAD", "CITE"]
    assert ["Facebook-wikimatrix-1-eng-glg", "?"] in rows
    assert ["Tilde-eesc-1-eng-glg", *human_bytes(2_500_000).split()] in rows
    assert index.asked == []  # nothing is downloaded


def test_train_comes_from_moses_files_and_dev_and_test_from_other_ids(index, tmp_path):
    flores = "Flores-flores200_dev-1-eng_Latn-glg_Latn"
    words = ["OPUS-tatoeba-v2-glg-eng", "--dev", flores, "--test", "Statmt-news-1-eng-glg"]
    out = tmp_path / "out"
    assert main(["mtdata", *words, *LANGS, "-o", str(out)]) == 0
    assert (out / "train.gl").read_bytes() == lines("gl", 90)
    assert (out / "train.en").read_bytes() == lines("en", 90)
    assert (out / "dev.gl").read_bytes() == lines("gl", 4, 200)
    assert (out / "test.gl").read_text() == "gl one\ngl two\n"  # read by mtdata
    manifest = json.loads((out / "MANIFEST.json").read_text())
    assert manifest["pairs"] == {"train": 90, "dev": 4, "test": 2}
    source = manifest["sources"][0]
    assert source["what"] == "OPUS-tatoeba-v2-eng-glg"
    assert source["license"] == "CC BY 2.0 France"
    assert len(source["sha256"]) == 64
    assert licenses_of(out)[0] == "CC BY 2.0 France"
    assert any("Parallel Data, Tools and Interfaces in OPUS" in note for note in manifest["notes"])
    asked = list(index.asked)
    assert main(["mtdata", *words, *LANGS, "-o", str(out), "--force"]) == 0
    assert index.asked == asked  # from the cache


def test_tables_and_translation_memories_lose_no_line_without_a_count(index, tmp_path):
    out = tmp_path / "out"
    ids = ["Facebook-wikimatrix-1-eng-glg", "Tilde-eesc-1-eng-glg"]
    sizes = ["--dev-size", "0", "--test-size", "0"]
    assert main(["mtdata", *ids, *sizes, *LANGS, "-o", str(out)]) == 0
    assert (out / "train.gl").read_text() == "un\ntres\nun e dous\n"
    assert (out / "train.en").read_text() == "one\nthree\none & two\n"
    dropped = json.loads((out / "MANIFEST.json").read_text())["dropped"]
    assert {name: found["count"] for name, found in dropped.items()} == {
        "fewer than 3 columns": 1, "not UTF-8": 1, "unit lacks a language": 1
    }  # fmt: skip
    assert dropped["fewer than 3 columns"]["first"] == "Facebook-wikimatrix-1-eng-glg:2"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["OPUS-tatoba-v2-eng-glg"], "did you mean OPUS-tatoeba-v2-eng-glg?"),
        (["HF-x-1-eng-glg"], "Hugging Face hub"),
        (["OPUS-tatoeba-v2-eng-glg", "--src-lang", "xx"], "no corpus of xx and en"),
    ],
)
def test_a_wrong_id_has_a_next_step_and_loads_nothing(index, tmp_path, capsys, words, part):
    assert main(["mtdata", *LANGS, "-o", str(tmp_path / "out"), *words]) == 2
    assert part in capsys.readouterr().err
    assert index.asked == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (zipped({"a.en": b"one\ntwo\n", "a.gl": b"un\n"}), "unequal number"),
        (zipped({"a.en": b"one\n"}), "has 0 files of the form *.gl"),
        (b"<html>log in</html>", "it is a web page"),
        (b"PK: log in", "damaged or truncated archive"),
    ],
)
def test_a_file_that_is_not_as_the_index_says(index, tmp_path, capsys, body, part):
    index.add("/moses/en-gl.txt.zip", body)
    assert main(["mtdata", "OPUS-tatoeba-v2-eng-glg", *LANGS, "-o", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert part in err
    assert "en-gl.txt.zip" in err
    assert not (tmp_path / "out").exists()


RECIPE = "src: gl\ntgt: en\ndata:\n  train: data/train\n  dev: data/dev\n  download: {}\n"


def recipe(folder: Path, download: str):
    path = folder / "toy.yaml"
    path.write_text(RECIPE.format(download), "utf-8")
    return load_recipe(path)


def test_a_recipe_names_the_words_of_the_command(index, tmp_path):
    sizes = "--dev-size 20 --test-size 0"
    obtain_corpus(recipe(tmp_path, f"mtdata OPUS-tatoeba-v2-eng-glg {sizes}"))
    train, dev = ((tmp_path / f"data/{name}.gl").read_text() for name in ("train", "dev"))
    assert (train.count("\n"), bool(dev)) == (70, True)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("mtdata", "no ID is given"),
        ("mtdata OPUS-tatoeba-v2-eng-glg --force", "unrecognized arguments: --force"),
        ("mtdata OPUS-tatoeba-v2-eng-glg --nope", "unrecognized arguments: --nope"),
        ("mtdata OPUS-tatoeba-v2-eng-glg --dev-size x", "x is not an integer"),
        ("ted_talks --dev-size 9", "ted_talks takes no options"),
    ],
)
def test_wrong_words_in_a_recipe(index, tmp_path, words, part):
    with pytest.raises(UserError) as caught:
        obtain_corpus(recipe(tmp_path, words))
    assert part in str(caught.value)
    assert caught.value.at.startswith(("data.download", "mtdata"))
    assert index.asked == []


INDEX = """
import os, pathlib
folder = pathlib.Path(os.environ["MTDATA"])
(folder / "mtdata.index.9.pkl").write_bytes(b"large")
(folder / "mtdata.index.9.jsonl").write_text("{}")
"""


def test_mtdata_writes_its_index_once_into_the_cache(tmp_path, monkeypatch, download_cache):
    """A stand-in: the real one takes a minute."""
    (tmp_path / "mtdata").mkdir()
    (tmp_path / "mtdata" / "__init__.py").touch()
    (tmp_path / "mtdata" / "index.py").write_text(INDEX)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = mtdata.index_file()
    assert path.read_text() == "{}"
    assert [p for p in download_cache.rglob("*") if p.is_file()] == [path]
    assert not (tmp_path / "home").exists()
    (tmp_path / "mtdata" / "index.py").write_text("1 / 0")
    assert mtdata.index_file() == path
    path.unlink()
    with pytest.raises(MachineError, match="ZeroDivisionError"):
        mtdata.index_file()


@pytest.mark.slow
def test_the_real_index_has_the_ids_of_the_help(download_cache):
    known = mtdata.records("gl", "en")
    ids = {word for word in (mtdata.__doc__ or "").split() if word.count("-") == 4}
    assert len(ids) == 5
    assert ids <= known.keys()
