"""Files of corrections as entries of the training corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.config.entries import HeldOutEntry
from nmt.data.bitext import RecipeFiles
from nmt.data.corrections import COLUMNS, read_corrections, write_row
from nmt.errors import UserError
from tests.data.test_entries import GL, prepared, recipe_for, text_of

HEADER = write_row(COLUMNS)


def row(source: str, corrected: str, langs: tuple[str, str] = ("gl", "en")) -> str:
    return write_row([source, "shown", corrected, *langs, "gl-en", "2026-01-02T03:04:05Z"])


def write(folder: Path, *rows: str, header: str = HEADER) -> str:
    path = folder / "corrections.tsv"
    path.write_text("".join(f"{line}\n" for line in (header, *rows)), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "text", ['"o" can', 'o "can"', '"', '""', "o\tcan\r\nvello\x00", " o can "]
)
def test_a_row_gives_back_its_texts(tmp_path: Path, text: str) -> None:
    read = list(read_corrections(Path(write(tmp_path, row(text, text))), ("gl", "en")))
    expected = text.translate({9: " ", 10: " ", 13: " ", 0: " "})
    assert read == [(expected, expected)]


def test_rows_of_the_other_direction_are_exchanged_and_those_of_other_languages_left(
    tmp_path: Path,
) -> None:
    rows = [
        row("o can", "the dog"),
        row("the cat", "o gato", ("en", "gl")),
        "",
        row("a", "b", ("pt", "en")),
    ]
    path = Path(write(tmp_path, *rows))
    assert list(read_corrections(path, ("gl", "en"))) == [
        ("o can", "the dog"),
        ("o gato", "the cat"),
    ]


def test_a_table_that_a_spreadsheet_program_saved_is_read(tmp_path: Path) -> None:
    """Columns in another order, one more, and quotes around a cell that contains some."""
    header = "time\tcorrected\tsource\tshown\tsrc\ttgt\tmodel\treviewed by"
    path = write(tmp_path, 't\t"the ""dog"""\to can\t\tgl\ten\tm\tAna', header=header)
    assert list(read_corrections(Path(path), ("gl", "en"))) == [("o can", 'the "dog"')]


@pytest.mark.parametrize(
    ("header", "line", "place", "what"),
    [
        ("o can\tthe dog", "", ":1", "no column source, shown, corrected"),
        (HEADER, row("o can", "the dog").rpartition("\t")[0], ":2", "has 6 columns"),
        (HEADER, '"o" can\ta', ":2", "the quotes of this row"),
    ],
)
def test_a_damaged_file_is_an_error_with_its_line(
    tmp_path: Path, header: str, line: str, place: str, what: str
) -> None:
    path = write(tmp_path, line, header=header)
    with pytest.raises(UserError, match=what) as found:
        list(read_corrections(Path(path), ("gl", "en")))
    assert found.value.at == path + place


def test_corrections_are_training_pairs_with_a_weight(tmp_path: Path) -> None:
    """They are plain text, which is tokenized as the corpus is."""
    path = write(tmp_path, row("O can come.", "The dog isn't here."), row("a", "b", ("pt", "en")))
    entry = {"path": path, "weight": 20}
    p = prepared(tmp_path, [str(tmp_path / "gl"), entry])
    assert p.train.sizes == [len(GL), 1]
    assert text_of(p, len(GL)) == ("O can come .", "The dog isn &apos;t here .")


def test_what_cannot_be_a_file_of_corrections_is_refused(tmp_path: Path) -> None:
    def files(train: Any, **keys: Any) -> RecipeFiles:
        return RecipeFiles.of(recipe_for(tmp_path, train).model_copy(update=keys))

    with pytest.raises(UserError, match="is not a file"):
        files(str(tmp_path / "missing.tsv"))
    with pytest.raises(UserError, match="not monolingual text"):
        files(write(tmp_path), task="causal_lm")
    with pytest.raises(ValueError, match=r"corrections is for data\.train"):
        HeldOutEntry(path="dev.tsv")
