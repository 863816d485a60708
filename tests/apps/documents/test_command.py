"""nmt-documents, with a real model that has learned words for some updates."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.apps.documents.journal import Journal
from nmt.cli import documents, train
from nmt.errors import UserError
from tests import words
from tests.apps.documents.samples import all_documents
from tests.apps.documents.test_formats import BOLD, content
from tests.trained import once

pytest.importorskip("markdown_it")
MARKS = [
    "%(name)s", "{name}", "https://x.org/a?b=1", "me@x.org", "1,000", "<b>", "</b>", "x()",
    "**", "<w:b/>", "footnoteReference", "<text:note", "<bpt",
]  # fmt: skip


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from gl to en whose translations are bad, so that most attempts are needed."""

    def fill(folder: Path) -> None:
        words.corpus(folder / "corpus", ("gl", "en"))
        words.recipe(folder / "gl-en.yaml", {**words.RECIPE, "out": str(folder / "run")}, 10)
        data = {split: str(folder / "corpus" / split) for split in words.SIZES}
        overrides = [f"data.{split}={path}" for split, path in data.items()]
        assert train.main([str(folder / "gl-en.yaml"), *overrides]) == 0

    return once(tmp_path_factory, "words", fill) / "run"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a document of each kind."""
    monkeypatch.chdir(tmp_path)
    for name, data in all_documents().items():
        Path(name).write_bytes(data)
    Path("words.txt").write_text("un dous %s tres <b>catro</b> cinco\n\nseis 2026\n", "utf-8")
    return tmp_path


def command(*argv: str | Path) -> int:
    return documents.main([*map(str, argv), "--workers", "1"])


@pytest.mark.slow
def test_terms_of_a_glossary_are_in_a_document(run: Path, folder: Path) -> None:
    Path("page.html").write_text("<p>un <b>dous</b> tres %s</p>\n", "utf-8")
    Path("terms.tsv").write_text("dous\tpair\n", "utf-8")
    assert command(run, "page.html", "-o", "new", "--glossary", "terms.tsv") == 0
    text = Path("new/page.html").read_text("utf-8")
    assert "pair" in text.lower()  # the beginning of a part may have a capital letter
    assert "%s" in text


@pytest.mark.slow
def test_each_kind_of_document_with_a_real_model(run, folder, capsys):
    names = sorted(path.name for path in folder.iterdir())
    assert command(run, *names, "-o", "new/folder") == 0
    made = Path("new/folder")
    assert {path.name for path in made.iterdir()} >= {*names}
    text = (made / "words.txt").read_text("utf-8").split("\n")
    assert text[1] == ""
    assert "%s" in text[0]
    assert text[0].index("<b>") < text[0].index("</b>")
    assert "2026" in text[2]
    for name in (name for name in BOLD if name in names):
        source, target = (content(name, (place / name).read_bytes()) for place in (folder, made))
        for mark in MARKS:
            assert target.count(mark) >= source.count(mark), (name, mark)
    assert "&amp;" in (made / "notes.txt").read_text("utf-8")
    printed = capsys.readouterr().err
    for report in made.glob("*.report.tsv"):
        assert str(report) in printed
        rows = [*csv.reader(report.open(encoding="utf-8"), delimiter="\t")]
        assert rows[0] == ["place", "problem", "note", "source", "translation"]
        assert all(row[1] or row[2] for row in rows[1:])


@pytest.mark.slow
def test_a_bad_file_does_not_stop_the_others(run, folder, capsys):
    Path("bad.docx").write_bytes(b"PK\x03\x04")
    Path("bad.po").write_text('msgid "a\n')
    Path("bad.html").write_text("<meta charset=rot13>a")
    arguments = [run, "bad.docx", "bad.html", "words.txt", "bad.po", "none.md", "-o", "out"]
    assert command(*arguments) == 2
    error = capsys.readouterr().err
    assert "bad.docx: is not a Word document" in error
    assert "bad.po:1" in error
    assert "none.md: No such file" in error
    assert "4 of 5 documents not translated" in error
    made = {path.name for path in Path("out").iterdir()}
    assert made in ({"words.txt"}, {"words.txt", "words.txt.report.tsv"})
    before = Path("out/words.txt").stat().st_mtime_ns
    assert command(run, "words.txt", "-o", "out") == 2
    assert command(run, "words.txt", "film.vtt", "-o", "out", "--resume") == 0
    assert Path("out/words.txt").stat().st_mtime_ns == before
    assert Path("out/film.vtt").exists()
    assert command(run, "words.txt", "-o", "out", "--force") == 0
    assert Path("out/words.txt").stat().st_mtime_ns > before


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["words.txt", "-o", "."], "is also an input"),
        (["words.txt", "-o", "film.srt"], "is not a folder"),
        (["empty", "-o", "out"], "empty: no document is in this folder"),
        (["words.txt", "words.txt", "-o", "out"], "the same name"),
        (["words.txt", "-o", "out", "--encoding", "rot13"], "not one of text"),
    ],
)
def test_wrong_arguments_are_named(arguments, what, short_run, folder, capsys):
    Path("empty").mkdir()
    assert command(short_run, *arguments) == 2
    assert what in capsys.readouterr().err


def test_a_folder_stands_for_the_documents_in_it(short_run, folder):
    names = sorted(path.name for path in folder.iterdir())
    for name in ("table.csv", ".hidden.txt", "below/word.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("1\n")
    runs = [str(short_run)] * 2
    args = documents.parser().parse_args([*runs, ".", "-o", "out"])
    found = documents.documents_of(args)
    assert [file.name for file in found.files] == names
    assert args.run == runs
    with pytest.raises(UserError, match="there is no document to translate"):
        documents.documents_of(documents.parser().parse_args([*runs, "-o", "out"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", ["d.translate_file", "journal.Journal.add", "journal.Journal.finish"]
)
def test_the_same_command_continues_after_a_kill(run: Path, folder: Path, call: str) -> None:
    """The command is killed at the second document, which it has not finished."""
    Path("long.txt").write_text("un dous tres\n" * 5 + "catro cinco\n" * 5, "utf-8")
    names = ["words.txt", "long.txt", "film.vtt"]
    program = (
        "import os, sys, nmt.apps.documents.document as d, nmt.apps.documents.journal as journal\n"
        f"calls, old = [], {call}\n"
        "def kill(*args, **options):\n"
        "    calls.append(args)\n"
        "    return os._exit(9) if len(calls) == 2 else old(*args, **options)\n"
        f"{call} = kill\nfrom nmt.cli.documents import main\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(run), *names, "-o", "out", "--workers", "1"],
        env={**os.environ, "PYTHONPATH": str(words.ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 9, done.stderr
    first = Path("out/words.txt")
    assert first.exists()
    assert not Path("out/long.txt").exists()
    before = first.stat().st_mtime_ns
    assert command(run, *names, "-o", "out", "--beam", "1") == 2  # another command
    assert command(run, *names, "-o", "out") == 0
    assert first.stat().st_mtime_ns == before
    assert len(Path("out/long.txt").read_text("utf-8").splitlines()) == 10
    left = {path.name for path in Path("out").iterdir() if path.name.startswith(".")}
    assert left == set()
    assert command(run, *names, "-o", "out") == 2  # it was not interrupted


def test_a_killed_command_does_not_replace_what_somebody_has_changed(run, folder, monkeypatch):
    def kill(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "delete", kill)
    assert command(run, "words.txt", "-o", "out") == 130
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    Path("out/words.txt").write_text("mine")
    assert command(run, "words.txt", "-o", "out") == 2
    assert Path("out/words.txt").read_text() == "mine"
