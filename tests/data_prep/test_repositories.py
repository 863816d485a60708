"""LAFAND and AmericasNLP, from checkouts made here in the layout of their repositories."""

import json

import pytest

from data_prep import americasnlp, lafand


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


@pytest.fixture
def unpinned(monkeypatch):
    """Skip the comparison with the ids of the real files."""
    monkeypatch.setattr("data_prep.remote.check_tree", lambda *_: None)


def splits(prefix, langs, names=("train", "dev", "test")):
    return {
        f"{prefix}/{split}.{lang}": f"{split} {lang} 1\n{split}  {lang} 2\n"
        for split in names
        for lang in langs
    }


def run(module, checkout, out, src, tgt):
    return module.main(
        ["--src-lang", src, "--tgt-lang", tgt, "--from", str(checkout), "--output", str(out)]
    )


@pytest.mark.parametrize("langs", [("en", "sw"), ("sw", "en"), ("en", "swa")])
def test_lafand(tmp_path, unpinned, langs):
    checkout = write(tmp_path / "lafand-mt", splits("data/text_files/en-swa", ("en", "swa")))
    out = tmp_path / "out"
    assert run(lafand, checkout, out, *langs) == 0
    for lang in langs:
        own = "en" if lang == "en" else "swa"
        assert (out / f"dev.{lang}").read_text() == f"dev {own} 1\ndev  {own} 2\n"  # as released
    assert json.loads((out / "MANIFEST.json").read_text())["pairs"]["train"] == 2


def test_lafand_without_train_and_with_an_underscore(tmp_path, unpinned):
    checkout = write(
        tmp_path / "lafand-mt",
        splits("data/text_files/en-amh", ("en", "amh"), ("dev", "test"))
        | splits("data/text_files/en_luo", ("en", "luo")),
    )
    assert run(lafand, checkout, tmp_path / "am", "en", "am") == 0
    assert not (tmp_path / "am/train.am").exists()
    assert (tmp_path / "am/test.am").exists()
    assert run(lafand, checkout, tmp_path / "luo", "luo", "en") == 0
    assert lafand.release("en_luo").files["dev"]["luo"].filename.endswith("en_luo/dev.luo")
    url = americasnlp.release("oto").files["train"]["es"].url
    assert url.endswith("/data/h%C3%B1%C3%A4h%C3%B1u-spanish/train.es")


@pytest.mark.parametrize(
    ("module", "langs", "message"),
    [
        (lafand, ("fr", "sw"), "no text in fr with sw"),
        (lafand, ("en", "swx"), "unknown language 'swx'; did you mean swa?"),
        (americasnlp, ("es", "quz"), "unknown language 'quz'; did you mean quy?"),
        (americasnlp, ("quy", "gn"), "one of --src-lang and --tgt-lang must be es"),
    ],
)
def test_missing_pairs(tmp_path, capsys, module, langs, message):
    assert run(module, tmp_path, tmp_path / "out", *langs) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("code", "folder"), [("oto", "hñähñu"), ("quy", "quechua")])
def test_americasnlp(tmp_path, unpinned, code, folder):
    checkout = write(
        tmp_path / "americasnlp2021",
        splits(f"data/{folder}-spanish", (code, "es"), ("train", "dev"))
        | splits("test_data", (code, "es"), ("test",)),
    )
    assert run(americasnlp, checkout, tmp_path / "out", "es", code) == 0
    assert (tmp_path / f"out/test.{code}").read_text() == f"test {code} 1\ntest  {code} 2\n"
    assert (tmp_path / "out/train.es").read_text() == "train es 1\ntrain es 2\n"


def test_a_wrong_checkout_is_refused_and_nothing_is_written(tmp_path, capsys):
    checkout = write(tmp_path / "lafand-mt", splits("data/text_files/en-swa", ("en", "swa")))
    assert run(lafand, checkout, tmp_path / "out", "en", "sw") == 2
    assert "not the expected files of LAFAND-MT: git tree" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
