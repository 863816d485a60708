"""nmt-sheet from files to sheets, and nmt-judge from filled sheets to a table."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

openpyxl = pytest.importorskip("openpyxl")

from nmt.apps.judge.analysis import COLUMNS  # noqa: E402
from nmt.apps.judge.key import read_documents, read_key  # noqa: E402
from nmt.cli import judge, sheet  # noqa: E402
from nmt.errors import UserError  # noqa: E402
from tests.scoring.runs import write_lines  # noqa: E402

LINES = 30
TEXTS = {
    "src": [f"zdroj {n}" if n != 4 else "" for n in range(LINES)],
    "good": [f"=good {n}" for n in range(LINES)],
    "poor": [f"poor\x02 {n}" for n in range(LINES)],
    "fair": [f"fair {n}" for n in range(LINES)],
    "ref": [f"reference {n}" for n in range(LINES)],
    "docs": [f"d{n // 5}" for n in range(LINES)],
}
WORTH = {"=good": 80, "fair": 60, "poor": 40}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, lines in TEXTS.items():
        write_lines(tmp_path / name, lines)
    return tmp_path


def make(*options: str) -> Path:
    systems = ["good", "poor", *(name for name in ("fair",) if name in options)]
    rest = [option for option in options if option != "fair"]
    assert sheet.main(["src", *systems, "-o", "sheet.xlsx", "--force", *rest]) == 0
    return Path("sheet.xlsx")


def rows(path: Path) -> list[dict[str, Any]]:
    titles, *found = openpyxl.load_workbook(path)["Judge"].iter_rows(values_only=True)
    return [dict(zip(titles, row, strict=True)) for row in found]


def fill(name: str, judge: Callable[[str, int], Any], change: Callable[[Any], None] | None = None):
    """Write a filled copy of the sheet.

    Args:
        judge: text of a translation and number of the row -> what the judge writes.
        change: what else happens to the page.
    """
    book = openpyxl.load_workbook("sheet.xlsx")
    page = book["Judge"]
    titles = [cell.value for cell in page[1]]
    for number, cells in enumerate(page.iter_rows(min_row=2)):
        for title, cell in zip(titles, cells, strict=True):
            if title.startswith("score "):
                text = cells[titles.index(f"translation {title[-1]}")].value
                cell.value = judge(text, number)
    if change:
        change(page)
    for cells in page.iter_rows():
        for cell in cells:
            if cell.data_type == "f":  # openpyxl makes formulas of copied texts
                cell.data_type = "s"
    book.save(name)
    return name


def worth(text: str, number: int) -> int:
    return WORTH[text.split()[0]] + number % 7


def read(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[tuple[str, ...], dict[str, str]]:
    capsys.readouterr()
    assert judge.main([*argv, "--key", "sheet.key.json"]) == 0
    lines = capsys.readouterr().out
    found = list(csv.DictReader(io.StringIO(lines), delimiter="\t"))
    assert lines.splitlines()[0].split("\t") == list(COLUMNS)
    return {(row["measure"], row["system"], row["baseline"]): row for row in found}


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    capsys.readouterr()
    assert judge.main(list(argv)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_a_sheet_is_blind_reproducible_and_has_the_texts(files, capsys):
    book = make("--sample", "20", "--ref", "ref", "fair")
    found, key = rows(book), read_key(Path("sheet.key.json"))
    assert len(found) == len(key.rows) == 20
    assert [row["row"] for row in found] == [row.id for row in key.rows]
    for shown, row in zip(found, key.rows, strict=True):
        place = row.line - 1
        assert (shown["source"], shown["reference"]) == (TEXTS["src"][place], TEXTS["ref"][place])
        for letter, system in zip("ABC", row.order, strict=True):
            text = TEXTS[key.systems[system]][place].replace("\x02", " ")
            assert shown[f"translation {letter}"] == text
        assert shown["score A"] is None
    assert len({row.order for row in key.rows}) == 6
    assert [row.line for row in key.rows] == sorted(row.line for row in key.rows)
    with zipfile.ZipFile(book) as content:  # no system's name, except as a word of its text
        text = "".join(content.read(name).decode() for name in content.namelist())
    assert text.count("poor") == text.count("fair") == 20
    assert "<f>" not in text  # =good is no formula
    assert rows(make("--sample", "20", "--ref", "ref", "fair")) == found


def test_documents_stay_together_and_keep_their_columns(files):
    make("--documents", "docs", "--sample", "11")
    key = read_key(Path("sheet.key.json"))
    by_document: dict[str, list[Any]] = {}
    for row in key.rows:
        by_document.setdefault(row.document, []).append(row)
    assert len(by_document) == 3
    for document, members in by_document.items():
        expected = [n + 1 for n in range(LINES) if TEXTS["docs"][n] == document and n != 4]
        assert [row.line for row in members] == expected
        assert len({row.order for row in members}) == 1


def test_filled_sheets_are_read_whatever_their_order(files, capsys):
    make()

    def disorder(page: Any) -> None:
        """Sort the rows upside down, move a column, delete three rows, and clear one."""
        content = list(page.iter_rows(values_only=True))
        content[1:] = content[:3:-1]
        page.delete_rows(1, page.max_row)
        for row in content:
            page.append([*row[1:], row[0]])
        titles = [cell.value for cell in page[1]]
        for letter in "AB":
            page.cell(3, titles.index(f"score {letter}") + 1).value = None
        page.cell(4, titles.index("score A") + 1).value = None
        page.cell(5, titles.index("score A") + 1).value = "81,5 "
        page.cell(5, titles.index("comment") + 1).value = "a\tcomment"

    anna = fill("anna.xlsx", worth)
    ben = fill("ben.xlsx", lambda text, number: worth(text, number) / 2, disorder)
    capsys.readouterr()
    argv = [anna, ben, "--key", "sheet.key.json", "-o", "all.tsv"]
    assert judge.main(argv) == 0
    notes = capsys.readouterr().err
    assert "ben.xlsx: 24 of 29 rows judged; 3 missing, 1 empty\n" in notes
    assert "ben.xlsx: 1 row judged in part and not counted: " in notes
    assert "wrote 53 judgements of each system to all.tsv" in notes
    lines = Path("all.tsv").read_text(encoding="utf-8").splitlines()
    table = list(csv.DictReader(lines, delimiter="\t"))
    assert len(table) == 2 * 53
    assert all(row["translation"].split()[0].strip("=") == row["system"] for row in table)
    own = [row for row in table if row["judge"] == "anna"]
    assert all(float(row["score"]) > 70 for row in own if row["system"] == "good")
    assert all(float(row["score"]) < 50 for row in own if row["system"] == "poor")
    assert [row["comment"] for row in table if row["comment"]] == ["a comment"] * 2
    assert sum(row["score"] == "81.5" for row in table) == 1
    found = read(capsys, anna, ben)
    for system in ("good", "poor"):
        scores = [float(row["score"]) for row in table if row["system"] == system]
        entry = found["score", system, ""]
        assert float(entry["value"]) == pytest.approx(sum(scores) / 53, abs=1e-4)
        assert float(entry["low"]) < float(entry["value"]) < float(entry["high"])
    assert found["wins", "poor", "good"]["value"] in ("0", "1")
    assert float(found["score", "poor", "good"]["p_value"]) < 0.05
    assert float(found["agreement_z", "", ""]["value"]) > 0.6
    assert float(found["agreement_score", "", ""]["value"]) < 0.5


FAULTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "text": (lambda p: p.__setitem__("D3", "good"), "ben.xlsx:D3: 'good' is not a number from 0"),
    "range": (lambda p: p.__setitem__("F9", 101), "ben.xlsx:F9: '101' is not a number from 0 to"),
    "nan": (lambda p: p.__setitem__("F9", "nan"), "ben.xlsx:F9: 'nan' is not a number from 0 to"),
    "changed": (lambda p: p.__setitem__("C5", "other"), "ben.xlsx:A5: the texts are not those of"),
    "sorted": (
        lambda p: p.move_range("B2:F2", rows=40) or p.move_range("B3:F3", rows=-1),
        "ben.xlsx:A2: the texts are not those of row",
    ),
    "twice": (
        lambda p: p.append([c.value for c in p[7]]),
        "ben.xlsx:A31: row 7-",
    ),
    "no id": (lambda p: p.__setitem__("A8", None), "ben.xlsx:A8: the id is missing"),
    "title": (lambda p: p.__setitem__("D1", "note"), "has the column 'score A' in its first row"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_a_sheet_is_named_by_its_cell(files, capsys, name):
    make()
    change, expected = FAULTS[name]
    argv = [fill("anna.xlsx", worth), fill("ben.xlsx", worth, change)]
    message = refused(capsys, *argv, "--key", "sheet.key.json")
    assert expected in message
    assert "anna.xlsx:" not in message


def test_all_faults_are_counted_and_no_judgement_is_lost(files, capsys):
    make()
    fill("ben.xlsx", lambda text, number: "?" if number < 12 else 5)
    message = refused(capsys, "ben.xlsx", "--key", "sheet.key.json")
    assert "24 cells cannot be used" in message
    assert "and 14 more" in message


def test_a_key_belongs_to_its_sheet(files, capsys):
    make()
    filled = fill("anna.xlsx", worth)
    text = Path("sheet.key.json").read_text(encoding="utf-8")
    argv = [filled, "--key", "sheet.key.json"]
    make("--sample", "20")
    message = refused(capsys, *argv)
    assert "anna.xlsx:A" in message
    assert "is not a row of this key" in message
    Path("sheet.key.json").write_text(text.replace('"line": 7', '"line": 8'), encoding="utf-8")
    assert "was changed after nmt-sheet wrote it" in refused(capsys, *argv)
    Path("sheet.key.json").write_text(json.dumps([1]), encoding="utf-8")
    assert "is not a key of nmt-sheet" in refused(capsys, *argv)
    Path("sheet.key.json").unlink()
    assert "no such file" in refused(capsys, *argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["good", "-o", "x.xlsx"], "1 system, but a sheet has two or three"),
        (["good", "good", "-o", "x.xlsx"], "good: this system is given twice"),
        (["good", "poor", "-o", "x.ods"], "x.ods: the sheet is an Excel workbook"),
        (["good", "short", "-o", "x.xlsx"], "short: 1 line, but the reference has"),
        (["good", "poor", "-o", "old.xlsx"], "old.key.json: exists already"),
    ],
)
def test_faulty_commands(files, capsys, argv, message):
    write_lines(files / "short", ["x"])
    (files / "old.key.json").write_text("", encoding="utf-8")
    assert sheet.main(["src", *argv]) == 2
    assert message in capsys.readouterr().err
    assert not list(files.glob("*.xlsx"))


def test_files_that_are_not_filled_sheets(files, capsys):
    unfilled = make()
    argv = ["src", "--key", "sheet.key.json"]
    assert "src: is not an Excel workbook" in refused(capsys, *argv)
    argv[0] = "none.xlsx"
    assert "none.xlsx: no such file" in refused(capsys, *argv)
    argv[0] = str(unfilled)
    assert "no row is judged" in refused(capsys, *argv)


def test_a_killed_sheet_is_made_again_with_its_key(files: Path) -> None:
    assert sheet.main(["src", "good", "poor", "-o", "new.xlsx"]) == 0
    key = Path("new.key.json").read_bytes()
    Path("new.xlsx").unlink()  # as if the command was killed before it gave the sheet its name
    Path(".tmp-new.xlsx").write_bytes(b"part")
    assert sheet.main(["src", "good", "poor", "-o", "new.xlsx", "--sample", "2"]) == 2
    assert sheet.main(["src", "good", "poor", "-o", "new.xlsx"]) == 0
    assert Path("new.xlsx").exists()
    assert Path("new.key.json").read_bytes() == key
    assert not [*Path().glob(".tmp-*")]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a"], "1 line, but the source has 3"),
        (["a", "", "b"], ":2: a blank line"),
        (["a", "b", "a"], ":3: document a continues after another one"),
    ],
)
def test_faulty_documents(tmp_path, ids, message):
    file = tmp_path / "docs"
    write_lines(file, ids)
    with pytest.raises(UserError, match=message):
        read_documents(str(file), 3)
