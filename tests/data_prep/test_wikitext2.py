"""WikiText-2: every line of one language, and the counts of words that perplexities use."""

import gzip
import json
from pathlib import Path

import pytest

from data_prep import wikitext2
from data_prep.remote import check_tree
from data_prep.write import Request
from nmt.errors import UserError

SHARED = Path(__file__).parents[2].parent / "shared/data/wikitext-2"
TEXTS = {
    "train.txt": " \n = Title = \n \n Some <unk> words . \n",
    "valid.txt": "a b\n\n",
    "test.txt": "c\n",
}


def write(folder: Path) -> None:
    for name, text in TEXTS.items():
        (folder / name).write_text(text, "utf-8")


def test_every_line_is_written(tmp_path, monkeypatch, capsys):
    write(tmp_path)
    monkeypatch.setattr(wikitext2, "TREE", "")
    assert wikitext2.main(["--output", str(tmp_path / "out"), "--from", str(tmp_path)]) == 0
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "MANIFEST.json", "dev.en", "test.en", "train.en",
    ]  # fmt: skip
    for split, name in wikitext2.SPLITS.items():
        assert (out / f"{split}.en").read_text("utf-8") == TEXTS[name]
    manifest = json.loads((out / "MANIFEST.json").read_text("utf-8"))
    assert manifest["pairs"] == {"train": 4, "dev": 2, "test": 1}
    assert manifest["words"]["train"] == {"en": 7}
    assert "wikitext-2 (en): train 4, dev 2, test 1 line in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        ("en", "", "these are not the expected files of WikiText-2"),
        ("en", "de", "'en' and 'de' cannot be the language of a text"),
        ("de", "", "use one of: en"),
        ("e n", "", "'e n' cannot be the language"),
    ],
)
def test_other_files_and_languages_are_refused(tmp_path, src, tgt, message):
    write(tmp_path)
    with pytest.raises(UserError, match=message):
        wikitext2.prepare(Request(tmp_path / "out", src, tgt, local=tmp_path))
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not SHARED.exists(), reason="needs wikitext-2")
def test_words_are_those_of_published_perplexities():
    texts = {}
    for split, words in (("valid", 217_646), ("test", 245_569)):
        text = gzip.decompress((SHARED / f"{split}.txt.gz").read_bytes())
        texts[f"{split}.txt"] = text
        lines = text.decode().splitlines()
        assert sum(len(line.split()) + 1 for line in lines) == words
    # git's id of a folder of the two files, whose ids are those of the pinned commit
    tree = "caee3123c0212734eb1b7fbefc9628bf74e365dd"
    check_tree(texts, tree, "WikiText-2", str(SHARED))
