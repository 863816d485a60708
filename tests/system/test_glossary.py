"""A glossary in nmt-translate and nmt-score, with a model that has learned its task."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from nmt.apps.evaluate.report import report
from nmt.apps.evaluate.terms import count_terms
from nmt.cli import score, translate
from nmt.data.text import read_lines
from nmt.scoring.systems import Systems
from tests.toy import reverse

LINES = ["3 1 4", "2 5", "", "4 1 2", "1 4 3"]
TERMS = "3\t☃\n1 4\t7 7\tdigits\n9\t8\n"


@pytest.fixture
def terms(tmp_path: Path) -> Path:
    file = tmp_path / "terms.tsv"
    file.write_text(TERMS, encoding="utf-8")
    return file


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str | Path
) -> tuple[int, list[str], str]:
    """Return the exit code of nmt-translate, the lines of its output, and standard error."""
    text = "".join(f"{line}\n" for line in LINES).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))
    code = translate.main([*map(str, argv), "--device", "cpu"])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


@pytest.mark.parametrize(("engine", "beam"), [("torch", "5"), ("auto", "1"), ("auto", "6")])
def test_translations_have_the_terms(trained, terms, engine, beam, monkeypatch, capsys):
    argv = trained, "--glossary", terms, "--beam", beam, "--engine", engine
    code, lines, err = run(monkeypatch, capsys, *argv)
    assert code == 0, err
    for row in (0, 4):
        assert "☃" in lines[row].split(), lines
        assert "7 7" in lines[row], lines
    assert [lines[row] for row in (1, 2, 3)] == ["5 2", "", reverse(LINES[3])]
    note = f"note: {terms}: 2 of 3 terms occur in the input; 4 translations of them required\n"
    assert note in err


@pytest.mark.parametrize(
    ("argv", "text", "message"),
    [
        ([], "3 ☃\n", "terms.tsv:1: 1 column; a glossary has 2 or 3"),
        (["--sample"], TERMS, "--glossary cannot be combined with --sample"),
        (["--score-target", __file__], TERMS, "--glossary cannot be combined with --score-target"),
        (["--output", "terms.tsv", "--force"], TERMS, "terms.tsv: is also an input"),
    ],
)
def test_what_is_refused(trained, terms, argv, text, message, monkeypatch, capsys):
    terms.write_text(text, encoding="utf-8")
    monkeypatch.chdir(terms.parent)
    code, lines, err = run(monkeypatch, capsys, trained, "--glossary", "terms.tsv", *argv)
    assert (code, lines) == (2, [])
    assert message in err
    assert terms.read_text(encoding="utf-8") == text


def test_scores_say_what_a_glossary_does(trained, tmp_path, capsys):
    """One term is right for the reference, another one is wrong."""
    sources = list(read_lines(trained.parent / "test.gl"))
    refs = list(read_lines(trained.parent / "test.en"))
    first, last = sources[0].split()[0], sources[1].split()[-1]
    others = {"wrong": "☃" if first != last else last}
    file = tmp_path / "terms.tsv"
    file.write_text(f"{first}\t{others['wrong']}\n{last}\t{last}\nabsent\t7\n", encoding="utf-8")
    assert score.main([str(trained), "--glossary", str(file), "--json", "--metrics", "bleu"]) == 0
    found = json.loads(capsys.readouterr().out)
    plain, with_terms = str(trained), f"{trained} + {file}"
    assert [row["system"] for row in found["scores"]] == [plain, with_terms]
    assert found["scores"][1]["difference"] is not None
    assert found["scores"][1]["p_value"] is not None
    for count in found["terms"]:
        lines = sum(count["term"] in source.split() for source in sources)
        assert count["lines"] == lines
        right = sum(count["targets"][0] in ref.split() for ref in refs)
        assert count["kept"]["reference"] == right
        assert count["kept"][with_terms] == lines
    assert "absent" not in [count["term"] for count in found["terms"]]
    # files in place of a run
    hyp = tmp_path / "hyp"
    hyp.write_text("".join(f"{line}\n" for line in refs), encoding="utf-8")
    ref = ["--ref", str(trained.parent / "test.en"), "--glossary", str(file), "--resamples", "0"]
    assert score.main(["--hyp", str(hyp), *ref, "--metrics", "bleu"]) == 2
    assert "--glossary requires --src with --hyp" in capsys.readouterr().err
    src = ["--src", str(trained.parent / "test.gl"), "--tokenized"]
    assert score.main(["--hyp", str(hyp), *ref, *src, "--metrics", "bleu"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    kept = {(row[0], row[1]): float(row[2]) for row in rows if row[1].startswith("kept:")}
    assert kept[str(hyp), f"kept:term={last}"] == kept["reference", f"kept:term={last}"]


def test_a_person_gets_a_table_of_terms():
    systems = Systems(
        texts={"ours": ["the settings.", "a file", "it"]},
        refs=["settings", "files", "file"],
        words={"ours": ["the settings .", "a file", "it"]},
        ref_words=["settings", "files", "file"],
        ref_name="ref",
        tgt_lang="en",
        tokenizer="none",
        sources=["nastavenia", "súbory", "súbor"],
    )
    glossary = [("nastaven*", "settings"), ("súbor*", "file"), ("súbor*", "files")]
    table = report(systems, ["bleu"], 0, terms=count_terms(systems, glossary)).table()
    rows = [line.split() for line in table.splitlines()]
    assert ["term", "lines", "reference", "ours"] in rows
    assert ["súbor*", "=", "file,", "files", "2", "2", "1"] in rows
    assert ["nastaven*", "=", "settings", "1", "1", "1"] in rows
    assert rows[-2:] == [["all", "3", "3", "2"], ["share", "100.0%", "66.7%"]]
