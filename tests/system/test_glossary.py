"""A glossary in nmt-translate, with a model that has learned its task."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from nmt.cli import translate
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
