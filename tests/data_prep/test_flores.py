"""FLORES from an archive made here in its layout."""

import io
import tarfile

import pytest

from data_prep import flores


@pytest.fixture
def archive(tmp_path, monkeypatch):
    path = tmp_path / "flores200_dataset.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for split in ("dev", "devtest"):
            for lang in ("eng_Latn", "glg_Latn", "arb_Arab"):
                data = f"{lang} {split}\u00a0 1\n{lang} {split} 2\n".encode()
                info = tarfile.TarInfo(f"./flores200_dataset/{split}/{lang}.{split}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    monkeypatch.setattr(flores, "SOURCE", flores.RemoteFile("FLORES", "x", path.name))
    return path


def test_dev_and_devtest_are_written_aligned(archive, tmp_path):
    out = tmp_path / "out"
    codes = ["--src-lang", "gl", "--tgt-lang", "en"]
    assert flores.main([*codes, "--from", str(archive), "--output", str(out)]) == 0
    assert (out / "dev.gl").read_text() == "glg_Latn dev\u00a0 1\nglg_Latn dev 2\n"
    assert (out / "test.en").read_text() == "eng_Latn devtest\u00a0 1\neng_Latn devtest 2\n"
    assert not (out / "train.gl").exists()
