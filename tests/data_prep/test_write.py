"""A corpus appears complete under its final name, or not at all."""

import hashlib
import json

import pytest

from data_prep.write import Corpus, Request, write_corpus
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.errors import MachineError, UserError


def corpus(**splits):
    drops = Drops()
    drops["blank"].add("train:7")
    splits = splits or {"train": [Pair("ä b", "c")], "dev": iter([Pair("d", "e f")])}
    return Corpus("toy", splits, drops)


def request(out, force=False, langs=("xx", "yy")):
    return Request(out, *langs, force)


def test_files_and_manifest_agree(tmp_path):
    out = tmp_path / "deep" / "toy"
    write_corpus(corpus(), request(out))
    manifest = json.loads((out / "MANIFEST.json").read_text("utf-8"))
    assert sorted(path.name for path in out.iterdir()) == [
        "MANIFEST.json", "dev.xx", "dev.yy", "train.xx", "train.yy",
    ]  # fmt: skip
    assert (out / "train.xx").read_bytes() == "ä b\n".encode()
    assert manifest["pairs"] == {"train": 1, "dev": 1}
    assert manifest["words"]["dev"] == {"xx": 1, "yy": 2}
    assert manifest["dropped"] == {"blank": {"count": 1, "first": "train:7"}}
    for name, value in manifest["sha256"].items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == value


def test_existing_output_needs_force(tmp_path):
    out = tmp_path / "toy"
    out.mkdir()
    (out / "mine.txt").write_text("precious")
    with pytest.raises(UserError, match="--force"):
        write_corpus(corpus(), request(out))
    assert (out / "mine.txt").read_text() == "precious"
    write_corpus(corpus(), request(out, force=True))
    assert not (out / "mine.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


@pytest.mark.parametrize("content", [["mine.txt"], []])
def test_the_folder_of_a_link_is_replaced_and_the_link_stays(tmp_path, content):
    folder, out = tmp_path / "disk" / "toy", tmp_path / "toy"
    folder.mkdir(parents=True)
    for name in content:
        (folder / name).write_text("old")
    out.symlink_to(folder)
    write_corpus(corpus(), request(out, force=True))
    assert out.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "toy"]
    assert not (folder / "mine.txt").exists()
    assert (folder / "train.xx").exists()


def test_an_empty_folder_is_filled_and_a_file_is_not_replaced(tmp_path):
    (tmp_path / "empty").mkdir()
    write_corpus(corpus(), request(tmp_path / "empty"))
    assert (tmp_path / "empty/train.xx").exists()
    (tmp_path / "toy").write_text("x")
    with pytest.raises(UserError, match="--output must be a directory"):
        write_corpus(corpus(), request(tmp_path / "toy", force=True))


def test_an_empty_split_names_the_filters(tmp_path):
    with pytest.raises(UserError, match=r"dev \(dropped: blank: 1\)"):
        write_corpus(corpus(train=[Pair("a", "b")], dev=[]), request(tmp_path / "toy"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exists", [False, True])
def test_full_disk_leaves_no_files_and_keeps_the_old_corpus(tmp_path, exists):
    out = tmp_path / "toy"
    if exists:
        write_corpus(corpus(), request(out))

    def pairs():
        yield Pair("a", "b")
        raise OSError(28, "No space left on device")

    with pytest.raises(MachineError, match=r"full: .* free.*\n.*another --output"):
        write_corpus(corpus(train=pairs()), request(out, force=True))
    assert [path.name for path in tmp_path.iterdir()] == (["toy"] if exists else [])
    assert not exists or (out / "train.xx").read_text("utf-8") == "ä b\n"


@pytest.mark.parametrize("langs", [("en", "en"), ("../up", "en"), ("en", "")])
def test_languages_must_be_suffixes_of_two_files(tmp_path, langs):
    with pytest.raises(UserError, match="cannot be source and target"):
        write_corpus(corpus(), request(tmp_path / "toy", langs=langs))
    assert list(tmp_path.iterdir()) == []


def test_credits_have_the_lines_of_their_pairs(tmp_path):
    pairs = [Pair("a", "b", credit="#1 (me)"), Pair("c", "d", credit="#2 (you)")]
    write_corpus(corpus(train=pairs, dev=[Pair("e", "f")]), request(tmp_path))
    assert (tmp_path / "train.credits").read_text() == "#1 (me)\n#2 (you)\n"
    assert not (tmp_path / "dev.credits").exists()
