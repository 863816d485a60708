"""Maps of spellings: longest row first, in one pass, for small letters and capitals."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.cleaning.spelling import Spelling, spellings
from nmt.cli import clean
from nmt.errors import UserError


def table(folder: Path, rows: str) -> Spelling:
    path = folder / "table.tsv"
    path.write_text(rows, "utf-8")
    return Spelling("shp", path)


@pytest.mark.parametrize(
    ("rows", "line", "mapped"),
    [
        ("hu\tw\nh\tj", "huni ha", "wni ja"),
        ("a\tb\nb\ta", "abba", "baab"),  # no row changes what another has written
        ("qu\tk", "qui Qui QUI", "ki Ki KI"),
        ("k\tqu", "kene Kene KENE K", "quene Quene QUENE Qu"),
        ("k\tqu\nK\tX", "kene KENE", "quene XENE"),
        ("'\t\u2019", "mba'e", "mba\u2019e"),
        ("'\t", "mba'e", "mbae"),
        ("ã\tâ", "mitã MITÃ", "mitâ MITÂ"),
        ("ã\tâ", unicodedata.normalize("NFD", "mitã"), "mitâ"),
        ("a\te", "a\u0331 a", "a\u0331 e"),  # a letter with a mark is another letter
        ("the house\tcasa", "The house, the houses", "Casa, casas"),
        (".\t!", "a.b", "a!b"),
        ("é\te\n\n", "é", "e"),
    ],
)
def test_lines_are_mapped(tmp_path, rows, line, mapped):
    assert table(tmp_path, rows).map(line) == mapped


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.dictionaries(st.text("abcd", min_size=1, max_size=3), st.text("xyz", max_size=3)),
       line=st.text("abcd xyz", max_size=30))  # fmt: skip
def test_a_map_is_the_longest_match_from_left_to_right(tmp_path, rows, line):
    rows["d"] = "z"
    expected, at = "", 0
    while at < len(line):
        size = next((n for n in (3, 2, 1) if line[at : at + n] in rows), 0)
        expected += rows[line[at : at + size]] if size else line[at]
        at += max(1, size)
    mapping = table(tmp_path, "".join(f"{a}\t{b}\n" for a, b in rows.items()))
    assert mapping.map(line) == expected
    assert mapping.changed == (expected != line)


@pytest.mark.parametrize(
    "rows", ["", "\n", "a", "a b", "\tb", "a\tb\tc", "a\tb\na\tc", "é\ta\ne\u0301\tb"]
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path, rows):
    with pytest.raises(UserError) as error:
        table(tmp_path, rows)
    assert "table.tsv" in error.value.at


@pytest.mark.parametrize("setting", ["table.tsv", "en=table.tsv", "=table.tsv", "shp="])
def test_a_table_names_a_language_of_the_text(setting):
    with pytest.raises(UserError, match="--spelling"):
        spellings([setting], ("es", "shp"))


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def test_one_side_of_a_text_is_mapped_before_the_rules(tmp_path, capsys):
    write(tmp_path / "raw.es", "la casa que veo", "la casa que veo", "otra casa")
    write(tmp_path / "raw.shp", "quené quehua", "kené kewa", "XYZ")
    rules = write(tmp_path / "t.tsv", "qu\tk", "hua\twa", "zz\ty")
    langs = ["--src-lang", "es", "--tgt-lang", "shp", "--set", "language=off"]
    out = tmp_path / "out"
    assert (
        clean.main([str(tmp_path / "raw"), "-o", str(out), *langs, "--spelling", f"shp={rules}"])
        == 0
    )
    assert (tmp_path / "out.shp").read_text("utf-8") == "kené kewa\nXYZ\n"  # one is a duplicate now
    assert (tmp_path / "out.es").read_text("utf-8") == "la casa que veo\notra casa\n"
    err = capsys.readouterr().err
    for part in ("1 of 3 shp lines", "quené quehua", "zz"):
        assert part in err


def test_one_file_is_mapped_line_by_line(tmp_path, capsys):
    text = write(tmp_path / "mono.shp", "quene", "", "xyz", "quene")
    rules = write(tmp_path / "t.tsv", "qu\tk")
    command = [str(text), "-o", str(tmp_path / "out.shp"), "--spelling", f"shp={rules}"]
    assert clean.main(command) == 0
    assert (tmp_path / "out.shp").read_text("utf-8") == "kene\n\nxyz\nkene\n"
    assert "2 of 4 shp lines" in capsys.readouterr().err
    assert clean.main(command) == 2  # exists already
    assert clean.main([*command, "--force"]) == 0
    assert clean.main([str(text), "-o", str(text), "--force", *command[3:]]) == 2


@pytest.mark.parametrize(
    "options", [[], ["--set", "ratio=off"], ["--src-lang", "es"], ["--spelling", "a=b", "c=d"]]
)
def test_without_two_languages_only_a_spelling_is_mapped(tmp_path, options):
    text = write(tmp_path / "mono.shp", "quene")
    assert clean.main([str(text), "-o", str(tmp_path / "out"), *options]) == 2
    assert not (tmp_path / "out").exists()
