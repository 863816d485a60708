"""Tables as spreadsheet programs and corpora write them, read by the importer of tables."""

import csv
import sys

import openpyxl
import pytest

from nmt.cli.import_corpus import main
from tests.data_prep.test_command import langs, manifest, read_back, texts

GOOD = list(texts(100))
# cells with all that requires quotes
ODD = [
    ('she said "now", twice', 'eyh "yas" won, eciwt'),
    ("first line\nsecond line", "tsrif\ndnoces"),
    ("one; two, three", "eno; owt, eerht"),
]
READ = [(" ".join(s.split()), " ".join(t.split())) for s, t in [*GOOD, *ODD]]
EXPORTS = {
    "excel.csv": {"delimiter": ","},
    "excel-germany.csv": {"delimiter": ";"},
    "excel.txt": {"delimiter": "\t"},
    "calc.csv": {"delimiter": ",", "quoting": csv.QUOTE_ALL},
    "calc.tsv": {"delimiter": "\t", "quoting": csv.QUOTE_ALL, "lineterminator": "\n"},
    "words.tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONNUMERIC},
}


def export(path, rows, **dialect):
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, **dialect).writerows(rows)
    return str(path)


@pytest.mark.parametrize("name", EXPORTS)
def test_what_a_spreadsheet_exports_is_read(tmp_path, capsys, name):
    rows = [(i, s, t) for i, (s, t) in enumerate([*GOOD, *ODD])]
    path = export(tmp_path / name, rows, **EXPORTS[name])
    assert main(["tsv", path, "--columns", "2,3", *langs(tmp_path / "out")]) == 0
    assert read_back(tmp_path / "out") == sorted(READ)
    assert f"{name}: cells are separated by " in capsys.readouterr().err


@pytest.mark.parametrize(
    "odd",
    [
        [('"Wait," she said.', '"Tiaw," dias ehs.')],
        [('5" of pipe', 'a "word" inside')],
        [('"Wait!"', '"Tiaw!"')],
        [('"Wait, all!"', '"Tiaw, lla!"'), ("a, b", "b, a")],
        [('"begins here', "ereh"), ("between", "neewteb"), ("ends here", 'ereh dne"')],
        [('"begins here', "ereh"), ("between", "neewteb"), ('ends here"', "ereh dne")],
        [('"', "x y"), ("z y", '"')],
        [('""', "x y")],
        [('"a ""b"""', "x y"), ('5 "', "x y z")],
    ],
)
def test_quotes_in_plain_tsv_are_text(tmp_path, capsys, odd):
    path = tmp_path / "pairs.tsv"
    rows = [*GOOD, *odd]
    path.write_text("".join(f"{s}\t{t}\n" for s, t in rows), "utf-8")
    assert main(["tsv", str(path), *langs(tmp_path / "out")]) == 0
    assert read_back(tmp_path / "out") == sorted(rows)
    assert "quoted" not in capsys.readouterr().err


def test_lines_in_quotes_are_never_read_silently(tmp_path, capsys):
    path, out = tmp_path / "pairs.tsv", tmp_path / "out"
    path.write_text("".join(f'"{s}" x\t"{t}"\n' for s, t in GOOD), "utf-8")
    assert main(["tsv", str(path), *langs(out)]) == 2
    assert "pass --quotes text to keep all quotes, or --quotes csv" in capsys.readouterr().err
    assert main(["tsv", str(path), "--quotes", "csv", *langs(out)]) == 2
    assert f"{path}:1: the quotes of the row" in capsys.readouterr().err
    assert main(["tsv", str(path), "--quotes", "text", *langs(out)]) == 0
    assert read_back(out) == sorted((f'"{s}" x', f'"{t}"') for s, t in GOOD)


@pytest.mark.parametrize(
    "odd", [[('"Wait!"', '"Tiaw!"'), ('"a ""b"" c"', "d")], [('"a, b"', "x")]], ids=["csv", "few"]
)
def test_signs_for_and_against_csv_are_an_error(tmp_path, capsys, odd):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{s}\t{t}\n" for s, t in [*odd, *GOOD]), "utf-8")
    assert main(["tsv", str(path), *langs(tmp_path / "out")]) == 2
    assert "--quotes text to keep all quotes" in capsys.readouterr().err


def test_the_first_row_counts(tmp_path):
    path = tmp_path / "pairs.tsv"
    export(path, [('a "b" c', "d e"), *GOOD], delimiter="\t")
    assert main(["tsv", str(path), *langs(tmp_path / "out")]) == 0
    assert read_back(tmp_path / "out") == sorted([('a "b" c', "d e"), *GOOD])
    export(path, [("Source", "Target"), *GOOD], delimiter="\t", quoting=csv.QUOTE_ALL)
    path.write_text(path.read_text("utf-8").replace('"Source"', "Source"), "utf-8")
    argv = [str(path), "--header", "--force", *langs(tmp_path / "out")]
    assert main(["tsv", *argv]) == 0
    assert read_back(tmp_path / "out") == sorted(GOOD)


def test_a_broken_row_of_csv_is_named(tmp_path, capsys):
    path = tmp_path / "pairs.csv"
    rows = [f"{s},{t}\n" for s, t in GOOD]
    rows[50] = '"a "b" c",d\n'
    path.write_text("".join(rows), "utf-8")
    assert main(["tsv", str(path), *langs(tmp_path / "out")]) == 2
    assert f"{path}:51: the quotes of the row that begins here" in capsys.readouterr().err


@pytest.mark.parametrize("lines", ["{} and, then {}\n", "{}, well, {}\n{}\n", "{}\n{}\n"])
def test_text_without_columns_is_an_error(tmp_path, capsys, lines):
    path = tmp_path / "notes.txt"
    path.write_text("".join(lines.format(*pair, pair[0]) for pair in GOOD[:-1]), "utf-8")
    code = main(["tsv", str(path), "--columns", "1,3", *langs(tmp_path / "out")])
    assert (code, "--delimiter" in capsys.readouterr().err) == (2, True)


def test_the_delimiter_may_be_given(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("".join(f"{s}|{t}\n" for s, t in GOOD), "utf-8")
    argv = [str(path), "--delimiter", "|", *langs(tmp_path / "out")]
    assert main(["tsv", *argv]) == 0
    assert read_back(tmp_path / "out") == sorted(GOOD)


@pytest.mark.parametrize("columns", ["Swahili, English", "2,English", "2,3"])
def test_columns_have_names(tmp_path, capsys, columns):
    path = tmp_path / "pairs.csv"
    rows = [("Document", "Swahili", "English"), *((i // 2, *pair) for i, pair in enumerate(GOOD))]
    export(path, rows)
    more = ["--header"] if columns == "2,3" else []
    out = tmp_path / "out"
    argv = [str(path), "--columns", columns, "--group-column", "1", *more, *langs(out)]
    assert main(["tsv", *argv, "--split", "group"]) == 0
    assert read_back(out) == sorted(GOOD)
    assert main(["tsv", *argv, "--columns", "Swahili,Englihs", "--force"]) == 2
    assert "pairs.csv:1: unknown column 'Englihs'; did you mean English?" in capsys.readouterr().err


WORDY = [(f"{s} {s[::-1]}", f"{t} word") for s, t in GOOD]


SW_EN = ["--src-lang", "sw", "--tgt-lang", "en"]  # after those of langs(), which they replace


@pytest.mark.parametrize(
    "names",
    [
        ("Swahili", "English"),
        ("Kiswahili", "Kiingereza"),
        ("sw", "en"),
        ("source_text", "target text (English)"),
        ("swa_Latn", "eng_Latn"),
    ],
)
def test_a_row_of_names_is_no_pair(tmp_path, capsys, names):
    path, out = export(tmp_path / "pairs.csv", [names, *GOOD]), tmp_path / "out"
    assert main(["tsv", path, *langs(out), *SW_EN]) == 0
    assert read_back(out, "sw", "en") == sorted(GOOD)
    err = capsys.readouterr().err
    assert f"{path}:1: " in err
    assert "--no-header" in err
    assert manifest(out)["dropped"]["names of columns"]["first"] == "pairs.csv:1"


def test_a_word_above_numbers_is_a_name(tmp_path, capsys):
    rows = [("Na.", "sentensi", "tafsiri"), *((i, *pair) for i, pair in enumerate(GOOD))]
    path = export(tmp_path / "pairs.csv", rows)
    assert main(["tsv", path, "--columns", "2,3", *langs(tmp_path / "out")]) == 0
    assert read_back(tmp_path / "out") == sorted(GOOD)
    assert f"{path}:1: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "argv", "noted"),
    [
        (("habari", "hello"), [], False),
        (("chanzo", "source"), [], True),  # may be a pair of a glossary
        (("English text", "Swahili text"), ["--no-header"], False),
    ],
)
def test_text_is_never_taken_for_names(tmp_path, capsys, first, argv, noted):
    path, out = export(tmp_path / "pairs.csv", [first, *GOOD]), tmp_path / "out"
    assert main(["tsv", path, *argv, *langs(out), *SW_EN]) == 0
    assert read_back(out, "sw", "en") == sorted([first, *GOOD])
    assert ("add --header" in capsys.readouterr().err) == noted


@pytest.mark.parametrize(
    "no_text",
    [
        lambda n: n,
        lambda n: f"sw-{n:05}",
        lambda n: f"https://example.org/{n}",
        lambda n: f"doc.{n}.txt",
        lambda n: "",
        lambda n: "sw",
        lambda n: ["2024-05-01", "3.5 %", "§ 12", "-"][n % 4],
    ],
)
def test_a_column_without_text_is_named(tmp_path, capsys, no_text):
    rows = [(s, no_text(i), t) for i, (s, t) in enumerate(WORDY)]
    path = export(tmp_path / "pairs.tsv", rows, delimiter="\t")
    assert main(["tsv", path, *langs(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert f"{path}: column 2 has no text" in err
    assert "1 ('" in err
    assert "3 ('" in err
    assert main(["tsv", path, "--columns", "1,3", *langs(tmp_path / "out")]) == 0


def test_chinese_with_numbers_is_text(tmp_path):
    rows = [(f"他有{n}本书。", f"He has {n} books and {n + 1} pens.") for n in range(100)]
    path = export(tmp_path / "pairs.tsv", rows, delimiter="\t")
    size = ["--dev-size", "0", "--test-size", "0", "-o", str(tmp_path / "out")]
    assert main(["tsv", path, "--src-lang", "zh", "--tgt-lang", "en", *size]) == 0


def test_rows_with_too_few_columns_are_listed(tmp_path, capsys):
    rows = [list(pair) for pair in GOOD]
    rows[7:8], rows[40:41] = [["one cell"]], [[]]
    path = export(tmp_path / "pairs.tsv", rows, delimiter="\t")
    assert main(["tsv", path, *langs(tmp_path / "out")]) == 0
    assert f"{path}:8 (1 column), {path}:41 (1 column)" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"'])
def test_the_delimiter_line_of_excel_is_read(tmp_path, line):
    path = tmp_path / "pairs.csv"
    export(path, [*GOOD, *ODD], delimiter=";")
    path.write_text(f"{line}\n" + path.read_text("utf-8-sig"), "utf-8-sig")
    assert main(["tsv", str(path), *langs(tmp_path / "out")]) == 0
    assert read_back(tmp_path / "out") == sorted(READ)


def workbook(path, *sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return str(path)


def test_a_workbook_is_read(tmp_path):
    rows = [["Swahili", None, "English"], *([s, 1, t] for s, t in [*GOOD, *ODD]), ["moja", 1, 1.5]]
    path = workbook(tmp_path / "pairs.xlsx", ("pairs", rows))
    assert main(["tsv", path, "--columns", "Swahili,English", *langs(tmp_path / "out")]) == 0
    assert read_back(tmp_path / "out") == sorted([*READ, ("moja", "1.5")])


def test_a_sheet_is_chosen(tmp_path, capsys):
    path = workbook(tmp_path / "pairs.xlsx", ("notes", [["x"]]), ("words", GOOD))
    assert main(["tsv", path, *langs(tmp_path / "out")]) == 2
    assert "has 2 sheets: notes, words\n  -> choose one with --sheet" in capsys.readouterr().err
    assert main(["tsv", path, "--sheet", "words", *langs(tmp_path / "out")]) == 0
    assert manifest(tmp_path / "out")["pairs"]["train"] == 60
    assert main(["tsv", path, "--sheet", "word", "--force", *langs(tmp_path / "out")]) == 2
    assert "did you mean words?" in capsys.readouterr().err


def test_a_workbook_needs_openpyxl_and_all_its_bytes(tmp_path, capsys, monkeypatch):
    path = tmp_path / "pairs.xlsx"
    workbook(path, ("words", GOOD))
    path.write_bytes(path.read_bytes()[:-500])
    assert main(["tsv", str(path), *langs(tmp_path / "out")]) == 2
    assert "cannot be read as an Excel workbook" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert main(["tsv", str(path), *langs(tmp_path / "out")]) == 2
    assert '-e ".[xlsx]"; or save the sheet as CSV' in capsys.readouterr().err
