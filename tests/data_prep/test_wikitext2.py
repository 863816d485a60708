"""WikiText-2: every line of one language, and the counts of words that perplexities use."""

import json
from pathlib import Path

import pytest

from data_prep.corpora import wikitext2
from data_prep.formats import Format
from data_prep.write import Request
from nmt.cli.import_corpus import main
from nmt.errors import UserError

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
    assert main(["wikitext2", "--output", str(tmp_path / "out"), "--from", str(tmp_path)]) == 0
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
        Format.load("wikitext2").write(Request(tmp_path / "out", src, tgt, local=tmp_path))
    assert not (tmp_path / "out").exists()
