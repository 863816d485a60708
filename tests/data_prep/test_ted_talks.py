"""The TED archive's own format: header of languages, missing sentences, tags, damage."""

import dataclasses
import json

import pytest

from data_prep.corpora import ted_talks
from data_prep.write import Request
from nmt.errors import UserError
from tests.data_prep.archives import tarred

ROWS = [
    "talk_name\ten\tgl\tpt-br",
    "t1\tHello there .\tOla a todos .\tx",
    "t1\tNobody said it .\t_ _ NULL _ _\tx",
    "t1\t__NULL__\tNinguén o dixo .\tx",
    "t2\t__en__ It &apos;s fine .\t_ _ gl _ _ Está\u00a0 ben .\tx",
    "t2\t__NULL__\t_ _ NULL _ _\tx",
    "t3\tshort row",
    'short "quoted\t" text\there "\tx',
]


def pack(path, names=("train", "dev", "test")):
    text = "".join(f"{row}\n" for row in ROWS)
    path.write_bytes(tarred({f"./all_talks_{name}.tsv": text for name in names}))
    return path


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setattr(ted_talks, "SOURCE", ted_talks.RemoteFile("TED", "x", "ted_talks.tar.gz"))
    return pack(tmp_path / "ted_talks.tar.gz")


def prepare(out, archive, src="gl"):
    ted_talks.prepare(Request(out, src, "en", local=archive))


def test_pairs_have_both_sides_and_no_tags(archive, tmp_path):
    prepare(tmp_path / "out", archive)
    gl = (tmp_path / "out/dev.gl").read_text("utf-8").splitlines()
    en = (tmp_path / "out/dev.en").read_text("utf-8").splitlines()
    assert gl == ["Ola a todos .", "Está\u00a0 ben .", 'here "']  # as released
    assert "Está ben .\n" in (tmp_path / "out/train.gl").read_text("utf-8")
    assert en == ["Hello there .", "It &apos;s fine .", '" text']
    dropped = json.loads((tmp_path / "out/MANIFEST.json").read_text("utf-8"))["dropped"]
    assert dropped["the talk lacks one side"] == {
        "count": 6,
        "first": "train:3 train:4 dev:3 dev:4 test:3 test:4",
    }
    assert dropped["row with another number of columns"]["first"] == "train:7 dev:7 test:7"


def test_other_direction_and_regional_codes(archive, tmp_path):
    prepare(tmp_path / "out", archive, "pt-br")
    assert (tmp_path / "out/train.pt-br").read_text().splitlines()[0] == "x"


def test_second_pair_does_not_download(tmp_path, monkeypatch, server):
    path = pack(tmp_path / "ted_talks.tar.gz")
    url = server.add("/data/ted_talks.tar.gz", path.read_bytes())
    source = dataclasses.replace(ted_talks.SOURCE, url=url, size=path.stat().st_size)
    monkeypatch.setattr(ted_talks, "SOURCE", source)
    prepare(tmp_path / "gl", None)
    prepare(tmp_path / "pt", None, "pt-br")
    assert server.asked == ["/data/ted_talks.tar.gz"]
    assert (tmp_path / "gl/dev.gl").read_text("utf-8").startswith("Ola a todos .\n")
    assert (tmp_path / "pt/dev.pt-br").read_text("utf-8").startswith("x\n")


def test_unknown_language_names_the_nearest_one(archive, tmp_path):
    with pytest.raises(UserError, match=r"'pt_br'; did you mean pt-br\?(.|\n)*en gl pt-br"):
        prepare(tmp_path / "out", archive, "pt_br")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("keep", [10, 100, 200, None])
def test_an_archive_that_is_truncated_or_lacks_a_split(archive, tmp_path, keep):
    if keep is None:
        pack(archive, names=("train", "dev"))
    else:
        archive.write_bytes(archive.read_bytes()[:keep])
    message = "damaged or truncated" if keep else r"has no all_talks_test\.tsv"
    with pytest.raises(UserError, match=message):
        prepare(tmp_path / "out", archive)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ted_talks.tar.gz"]
