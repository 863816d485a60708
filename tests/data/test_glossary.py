"""Files of terms."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nmt.data.glossary import read_glossary
from nmt.errors import UserError

TEXT = "\ufeffkôň\thorse\r\n\r\nnov* súbor\tnew file\ta note\r\nkôň\tsteed\nkôň\thorse\n"
TERMS = [("kôň", "horse"), ("nov* súbor", "new file"), ("kôň", "steed")]


def test_a_glossary_is_read_as_people_write_it(tmp_path: Path) -> None:
    plain, packed = tmp_path / "terms.tsv", tmp_path / "terms.tsv.gz"
    plain.write_bytes(TEXT.encode())
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert read_glossary(plain) == read_glossary(packed) == TERMS


@pytest.mark.parametrize(
    ("content", "place", "what"),
    [
        (b"", "", "no term"),
        (b"\n \n", "", "no term"),
        (b"a\tb\nc;d\n", ":2", "1 column; a glossary has 2 or 3"),
        (b"a\tb\tc\td\n", ":1", "4 columns"),
        (b"a\tb\n\tb\n", ":2", "the source term is blank"),
        ("a\t\u200b\n".encode(), ":1", "the target term is blank"),
        (b"a\tb\n* c\td\n", ":2", "* stands alone"),
        (b"a\t" + b"b" * 201, ":1", "the target term has 201 characters, at most 200"),
        ("a\t\u2581b\n".encode(), ":1", "U+2581"),
        (b"a\tb\nk\xf4\xf2\thorse\n", ":2", "not UTF-8"),
        ("a\tb\n".encode("utf-16"), "", "not a text file"),
        (None, "", "No such file"),
    ],
)
def test_wrong_lines_are_named(
    tmp_path: Path, content: bytes | None, place: str, what: str
) -> None:
    file = tmp_path / "terms.tsv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_glossary(file)
    assert error.value.at == f"{file}{place}"
    assert what in error.value.what
    assert error.value.fix
