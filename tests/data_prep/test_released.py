"""Released line-aligned files: pairs stay aligned, files of unequal length are refused."""

import dataclasses
import json

import pytest

from data_prep.corpora import iwslt15_en_vi, wmt14_en_de
from data_prep.remote import RemoteFile
from data_prep.write import Request
from nmt.errors import UserError
from nmt.scoring.metrics import tokenized_bleu


def unpinned(release):
    files = {
        split: {
            lang: RemoteFile(s.what, s.license, s.filename, url=s.url) for lang, s in sides.items()
        }
        for split, sides in release.files.items()
    }
    return dataclasses.replace(release, files=files)


def request(release, folder):
    src, tgt = release.files["test"]
    return Request(folder / "out", src, tgt, local=folder)


def write(folder, release, texts):
    for split, sides in release.files.items():
        for source, text in zip(sides.values(), texts.get(split, ("a\n", "b\n")), strict=True):
            (folder / source.filename).write_text(text, "utf-8", newline="")


def test_a_blank_side_drops_the_training_pair(tmp_path):
    release = unpinned(iwslt15_en_vi.RELEASE)
    write(tmp_path, release, {"train": ("one\r\n\ntwo  2\n \nx\u2028y\n", "mot\nlac\nhai\n\nz\n")})
    release.prepare(request(release, tmp_path))
    assert (tmp_path / "out/train.en").read_text("utf-8") == "one\ntwo 2\nx y\n"
    assert (tmp_path / "out/train.vi").read_text("utf-8") == "mot\nhai\nz\n"
    manifest = json.loads((tmp_path / "out/MANIFEST.json").read_text("utf-8"))
    assert manifest["dropped"]["blank"] == {"count": 2, "first": "train:2 train:4"}


ODD = "one\u00a0 two \r\n\n\u200b\n x\u2028y\tz"


def test_lines_of_dev_and_test_are_as_released(tmp_path):
    release = unpinned(iwslt15_en_vi.RELEASE)
    write(tmp_path, release, {"dev": (ODD, "a\nb\n\nc\n"), "test": ("\n", "a\n")})
    release.prepare(request(release, tmp_path))
    out = tmp_path / "out"
    expected = ["one\u00a0 two ", "", "\u200b", " x\u2028y\tz", ""]
    assert (out / "dev.en").read_text("utf-8").split("\n") == expected
    assert (out / "dev.vi").read_text("utf-8") == "a\nb\n\nc\n"
    assert (out / "test.en").read_text("utf-8") == "\n"
    assert json.loads((out / "MANIFEST.json").read_text("utf-8"))["dropped"] == {}


@pytest.mark.parametrize(
    ("src", "tgt"), [("a\nb\nc\n", "a\n"), ("a\n", "a\nb\nc\n"), ("a\nb\nc", "a\n")]
)
def test_unequal_files_name_both_counts(tmp_path, src, tgt):
    release = unpinned(iwslt15_en_vi.RELEASE)
    write(tmp_path, release, {"dev": (src, tgt)})
    one, other = ("1 line", 3) if src == "a\n" else ("3 lines", 1)
    with pytest.raises(UserError, match=f"has {one}, but tst2012.vi has {other}") as error:
        release.prepare(request(release, tmp_path))
    assert error.value.at.endswith("tst2012.en")
    assert not (tmp_path / "out").exists()


def test_split_compounds_get_the_mark_of_the_moses_tokenizer(tmp_path):
    release = unpinned(wmt14_en_de.RELEASE)
    write(tmp_path, release, {"test": ("rich ##AT##-##AT## text\n", "a ##AT##-##AT## b\n")})
    release.prepare(request(release, tmp_path))
    assert (tmp_path / "out/test.en").read_text() == "rich @-@ text\n"
    assert (tmp_path / "out/test.de").read_text() == "a @-@ b\n"


def test_tokenized_bleu_equals_that_of_the_atat_format():
    refs = ["Er ist ein wohl ##AT##-##AT## bekannter Mann .", "Das Haus ist sehr alt ."]
    hyps = ["Er ist ein sehr ##AT##-##AT## bekannter Mann .", "Das Haus ist alt ."]
    ours = [[wmt14_en_de.restore(line) for line in lines] for lines in (hyps, refs)]
    assert tokenized_bleu(*ours).value == tokenized_bleu(hyps, refs).value
    assert "@-@" in ours[0][0]
