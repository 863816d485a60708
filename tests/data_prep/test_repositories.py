"""LAFAND and AmericasNLP, from checkouts made here in the layout of their repositories."""

import json

import pytest

from data_prep.corpora import americasnlp, lafand
from nmt.cli.import_corpus import main


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


def run(name, checkout, out, src, tgt):
    return main(
        [name, "--src-lang", src, "--tgt-lang", tgt, "--from", str(checkout), "--output", str(out)]
    )


@pytest.mark.parametrize("langs", [("en", "sw"), ("sw", "en"), ("en", "swa")])
def test_lafand(tmp_path, unpinned, langs):
    checkout = write(tmp_path / "lafand-mt", splits("data/text_files/en-swa", ("en", "swa")))
    out = tmp_path / "out"
    assert run("lafand", checkout, out, *langs) == 0
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
    assert run("lafand", checkout, tmp_path / "am", "en", "am") == 0
    assert not (tmp_path / "am/train.am").exists()
    assert (tmp_path / "am/test.am").exists()
    assert run("lafand", checkout, tmp_path / "luo", "luo", "en") == 0
    assert lafand.release("en_luo").files["dev"]["luo"].filename.endswith("en_luo/dev.luo")
    url = americasnlp.release("oto").files["train"]["es"].url
    assert url.endswith("/data/h%C3%B1%C3%A4h%C3%B1u-spanish/train.es")


@pytest.mark.parametrize(
    ("name", "langs", "message"),
    [
        ("lafand", ("fr", "sw"), "no text in fr with sw"),
        ("lafand", ("en", "swx"), "unknown language 'swx'; did you mean swa?"),
        ("americasnlp", ("es", "quz"), "unknown language 'quz'; did you mean quy?"),
        ("americasnlp", ("quy", "gn"), "one of --src-lang and --tgt-lang must be es"),
    ],
)
def test_missing_pairs(tmp_path, capsys, name, langs, message):
    (tmp_path / "test_data").mkdir()  # as in the release of 2021
    assert run(name, tmp_path, tmp_path / "out", *langs) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("code", "folder"), [("oto", "hñähñu"), ("quy", "quechua")])
def test_americasnlp(tmp_path, unpinned, code, folder):
    checkout = write(
        tmp_path / "americasnlp2021",
        splits(f"data/{folder}-spanish", (code, "es"), ("train", "dev"))
        | splits("test_data", (code, "es"), ("test",)),
    )
    assert run("americasnlp", checkout, tmp_path / "out", "es", code) == 0
    assert (tmp_path / f"out/test.{code}").read_text() == f"test {code} 1\ntest  {code} 2\n"
    assert (tmp_path / "out/train.es").read_text() == "train es 1\ntrain es 2\n"


WORDS = [a + b + c for a in "bcdfghklmn" for b in "aeiou" for c in "prstvxz"]


def lines(lang, count, first=0):
    """``count`` lines of five words, none of which has the words of another."""
    return "".join(
        " ".join(f"{lang}{WORDS[n % 350]}{WORDS[(n * k + k) % 350]}" for k in range(1, 6)) + "\n"
        for n in range(first, first + count)
    )


def task(prefix, code, train="train"):
    """The files of one language since 2023: no references of a test set."""
    table = zip(lines("es", 20, 160).splitlines(), lines(code, 20, 160).splitlines(), strict=True)
    return {
        **{f"{prefix}/{train}.{lang}": lines(lang, 100) for lang in ("es", code)},
        **{f"{prefix}/dev.{lang}": lines(lang, 50, 110) for lang in ("es", code)},
        f"{prefix}/dev.source": "Handbook\n" * 50,
        f"{prefix}/test.es": lines("es", 5, 300),
        f"{prefix}/extra.tsv": "".join(f"Book \t{s} \t{t} \n" for s, t in table) + "Book\tone\n",
    }


YEARS = {
    "2023": "data/shipibo_konibo-spanish",
    "2025": "ST1_MachineTranslation/data/shipibo_konibo-spanish",
    "data": "shipibo_konibo-spanish",
    "one": ".",
}


@pytest.mark.parametrize("year", YEARS)
@pytest.mark.parametrize("langs", [("es", "shp"), ("shp", "spa")])
def test_the_dev_set_of_a_task_is_the_test_set_and_dev_is_cut_from_train(tmp_path, year, langs):
    checkout = write(tmp_path / "release", task(YEARS[year], "shp"))
    if year != "one":
        write(checkout, task(YEARS[year].replace("shipibo_konibo", "hñähñu"), "oto"))
    out = tmp_path / "out"
    words = ["--src-lang", langs[0], "--tgt-lang", langs[1], "--from", str(checkout)]
    assert main(["americasnlp", *words, "-o", str(out), "--dev-size", "20", "--extra"]) == 0
    spanish = next(lang for lang in langs if lang != "shp")
    assert (out / "test.shp").read_text() == lines("shp", 50, 110)
    assert (out / f"test.{spanish}").read_text() == lines("es", 50, 110)
    manifest = json.loads((out / "MANIFEST.json").read_text())
    assert manifest["pairs"] == {"train": 80, "dev": 20, "test": 50, "extra": 20}
    assert manifest["dropped"]["not 3 columns"]["count"] == 1
    assert len(manifest["sources"]) == 5
    assert {*(out / "train.shp").read_text().splitlines()} | {
        *(out / "dev.shp").read_text().splitlines()
    } == {*lines("shp", 100).splitlines()}
    assert (out / "extra.shp").read_text() == lines("shp", 20, 160)


def test_further_text_loses_what_resembles_dev_or_test(tmp_path):
    files = task("data/x-spanish", "shp")
    rows = zip(lines("es", 170).splitlines(), lines("shp", 170).splitlines(), strict=True)
    files["data/x-spanish/extra.tsv"] = "".join(f"all\t{s}!\t{t} 7\n" for s, t in rows)
    checkout, out = write(tmp_path / "release", files), tmp_path / "out"
    words = ["--src-lang", "es", "--tgt-lang", "shp", "--from", str(checkout), "-o", str(out)]
    assert main(["americasnlp", *words, "--dev-size", "20", "--extra"]) == 0
    dropped = json.loads((out / "MANIFEST.json").read_text())["dropped"]
    assert dropped["extra: near-duplicate in dev or test"]["count"] == 20 + 50


def test_the_text_that_is_not_tokenized_is_preferred(tmp_path):
    files = task("data/raramuri-spanish", "tar", "train_nontok")
    tokenized = {f"data/raramuri-spanish/train.{lang}": "a , b\n" for lang in ("es", "tar")}
    checkout, out = write(tmp_path / "release", files | tokenized), tmp_path / "out"
    words = ["--src-lang", "es", "--tgt-lang", "tar", "--from", str(checkout), "-o", str(out)]
    assert main(["americasnlp", *words, "--dev-size", "20"]) == 0
    assert (out / "train.tar").read_text().count("\n") == 80
    names = [file.filename for file in americasnlp.release("tar").files["train"].values()]
    assert all("nontok" in name for name in names)


@pytest.mark.parametrize(
    ("files", "words", "part"),
    [
        ({"README.md": ""}, ["--tgt-lang", "shp"], "--from"),
        ({"a-spanish/dev.shp": "x\n"}, ["--tgt-lang", "shp"], "train.es"),
        (task("data/a-spanish", "shp"), ["--tgt-lang", "gn"], "unknown language 'gn'"),
        (task("data/a-spanish", "shp"), ["--tgt-lang", "shp", "--synthetic"], "synthetic.tsv"),
        ({"test_data/test.es": ""}, ["--tgt-lang", "shp", "--extra"], "--extra"),
    ],
)
def test_what_a_release_lacks_is_named(tmp_path, capsys, files, words, part):
    checkout, out = write(tmp_path / "release", files), tmp_path / "out"
    argv = ["--src-lang", "es", *words, "--from", str(checkout), "-o", str(out)]
    assert main(["americasnlp", *argv]) == 2
    assert part in capsys.readouterr().err
    assert not out.exists()


def test_a_wrong_checkout_is_refused_and_nothing_is_written(tmp_path, capsys):
    checkout = write(tmp_path / "lafand-mt", splits("data/text_files/en-swa", ("en", "swa")))
    assert run("lafand", checkout, tmp_path / "out", "en", "sw") == 2
    assert "not the expected files of LAFAND-MT: git tree" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
