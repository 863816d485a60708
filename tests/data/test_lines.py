"""Reading text, and what a path or file is called that is no text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.tables import TableFormat, read_rows
from nmt.cli.import_corpus import main
from nmt.cli.input import StreamLines, read_input
from nmt.config.load import load_recipe, recipe_from_text
from nmt.data.glossary import read_glossary
from nmt.data.lines import (
    OPENERS,
    SAMPLE,
    clean_line,
    find_side,
    is_blank,
    read_lines,
    unicode_encoding,
)
from nmt.errors import UserError
from nmt.store.folder import RunFolder


def lines_of(tmp_path: Path, data: bytes, name: str = "a.en") -> list[str]:
    path = tmp_path / name
    path.write_bytes(data)
    return list(read_lines(path))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\rstill one\n", ["one still one"]),
        ("\ufeffone\ntwo".encode(), ["one", "two"]),
        ("a\u2028b\u2029c\u0085d\x0be\x0cf\n".encode(), ["a\u2028b\u2029c d e f"]),
        (b"nul\x00 bell\x07\n\n", ["nul  bell ", ""]),
        (b"", []),
    ],
)
def test_only_lf_ends_a_line(tmp_path: Path, data: bytes, lines: list[str]):
    assert lines_of(tmp_path, data) == lines
    assert lines_of(tmp_path, gzip.compress(data), "a.en.gz") == lines
    assert lines_of(tmp_path, lzma.compress(data), "a.en.xz") == lines


def test_references_are_not_cleaned(tmp_path: Path):
    (tmp_path / "r").write_bytes("a\tb\u00a0 e\u0301\n".encode())
    assert list(read_lines(tmp_path / "r", clean=False)) == ["a\tb\u00a0 e\u0301"]


def test_clean_is_idempotent_and_keeps_text():
    text = "Ça va? \u00a0 “ok” 日本語 e\u0301"
    assert clean_line(text) == text
    assert clean_line(clean_line("a\tb")) == clean_line("a\tb") == "a b"


@pytest.mark.parametrize("line", ["", " ", "\u00a0\u3000", "\u200b", "\ufeff \u2060", "\u00ad"])
def test_blank(line: str):
    assert is_blank(line)


def test_not_blank():
    assert not is_blank("\u200ba")


def test_compressed_bomb_is_an_error(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("nmt.data.lines.LONGEST_LINE", 1000)
    with pytest.raises(UserError, match="this line has over 1,000 bytes"):
        lines_of(tmp_path, gzip.compress(b"x" * 10_000), "a.en.gz")


def test_find_side_finds_archives_but_not_folders(tmp_path: Path):
    (tmp_path / "t.gl.gz").touch()
    (tmp_path / "t.en").mkdir()
    assert find_side(str(tmp_path / "t"), "gl") == tmp_path / "t.gl.gz"
    with pytest.raises(UserError, match="not a regular file"):
        find_side(str(tmp_path / "t"), "en")
    with pytest.raises(UserError) as error:
        find_side(str(tmp_path / "t"), "sk")
    assert "t.sk" in str(error.value)
    assert ".gz" in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x28\xb5\x2f\xfd\x24\x0d", "a zstd file, which is not supported: unpack it"),
        (gzip.compress(b"text\n", mtime=0), "a gzip file: rename it so that its name ends in .gz"),
        (lzma.compress(b"text\n"), "an xz file: rename it so that its name ends in .xz"),
        (bz2.compress(b"some text\n" * 9), "a bzip2 file: rename it so that its name ends in .bz2"),
        (b"PK\x03\x04\xff", "a zip archive: unpack it"),
        ("text\n".encode("utf-16"), "UTF-16: convert it"),
    ],
)
def test_error_names_the_type_of_a_binary_file(tmp_path, data, message):
    with pytest.raises(UserError) as error:
        lines_of(tmp_path, data, "a.en")
    assert message in str(error.value)


def test_a_line_does_not_decide_the_type_of_the_file(tmp_path):
    with pytest.raises(UserError, match=r"a\.en:2: not UTF-8: .*\n.*convert the file to UTF-8"):
        lines_of(tmp_path, b"text\n\xff\xfe\n", "a.en")


def test_zstd_file_is_an_error_of_its_own(tmp_path):
    (tmp_path / "t.gl.zst").touch()
    with pytest.raises(
        UserError, match=r"t\.gl\.zst: zstd files are not supported\n.*zstd -d t\.gl\.zst"
    ):
        find_side(str(tmp_path / "t"), "gl")


def archive(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name.replace("__", "/").replace("_xml", ".xml"), content)
    return path


def document(folder: Path, kind: str) -> Path:
    path = folder / f"text.{kind}"
    if kind == "docx":
        return archive(path, Content_Types_xml="x", word__document_xml="x")
    if kind in ("odt", "ods"):
        form = {"odt": "text", "ods": "spreadsheet"}[kind]
        return archive(path, mimetype=f"application/vnd.oasis.opendocument.{form}")
    if kind == "xlsx":
        openpyxl.Workbook().save(path)
        return path
    starts = {"pdf": b"%PDF-1.4\n1 0 obj\n", "rtf": b"{\\rtf1\\ansi text}\n"}
    path.write_bytes(starts.get(kind, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"))
    return path


KINDS = {
    "docx": "a Word document (.docx): save it as plain text",
    "odt": "an OpenDocument text (.odt): save it as plain text",
    "ods": "an OpenDocument spreadsheet (.ods): save it as .xlsx",
    "xlsx": "an Excel workbook (.xlsx): import its pairs with nmt-import tsv",
    "pdf": "a PDF file: extract its text with pdftotext",
    "rtf": "a document in Rich Text Format: save it as plain text",
    "doc": "an old Microsoft Office file (.doc, .xls, .ppt): open it",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_is_called_what_it_is(tmp_path, kind):
    path = document(tmp_path, kind)
    named_as_text = path.rename(tmp_path / "train.en")
    for read in (
        lambda: list(read_lines(named_as_text)),
        lambda: list(read_lines(named_as_text, errors="surrogateescape")),
        lambda: find_side(str(named_as_text.rename(path)), "en"),
    ):
        with pytest.raises(UserError) as error:
            read()
        assert KINDS[kind] in error.value.fix
        assert "zip archive" not in str(error.value)


def test_the_importer_of_memories_names_a_document(tmp_path, capsys):
    path = document(tmp_path, "docx")
    options = ["--src-lang", "xx", "--tgt-lang", "yy", "-o", str(tmp_path / "out")]
    for form in ("tmx", "tsv"):
        assert main([form, str(path), *options]) == 2
        assert "a Word document (.docx)" in capsys.readouterr().err
    for form in ("tmx", "tsv", "gettext"):
        assert main([form, "https://example.org/a/b.tmx", *options]) == 2
        assert "this is a URL: download the file, for" in capsys.readouterr().err
        assert main([form, str(tmp_path / "txet.docx"), *options]) == 2
        assert f"did you mean {path}?" in capsys.readouterr().err
        os.mkfifo(pipe := tmp_path / f"{form}.mo")
        assert main([form, str(pipe), *options]) == 2
        assert "is not a regular file" in capsys.readouterr().err


def corpus(folder: Path) -> Path:
    folder.mkdir()
    for name in ("train.gl", "train.en.gz", "dev.gl", "dev.en"):
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize(
    ("prefix", "near"),
    [("corp/trian", "corp/train"), ("crop/train", "corp/train"), ("crop/trian", "corp/train")],
)
@pytest.mark.parametrize("lang", ["gl", "en"])
def test_a_missing_corpus_gives_a_near_name(tmp_path, prefix, near, lang):
    corpus(tmp_path / "corp")
    with pytest.raises(UserError) as error:
        find_side(str(tmp_path / prefix), lang)
    assert f"did you mean {tmp_path / near}?" in error.value.fix
    assert error.value.at == f"{tmp_path / prefix}.{lang}"


@pytest.mark.parametrize(
    ("prefix", "fix"),
    [
        ("corp/train.gl", "leave out the ending: {}/corp/train"),
        ("corp/train.en.gz", "leave out the ending: {}/corp/train"),
        ("corp", "add the name of the files, such as {}/corp/dev"),
        ("corp/nothing-like-it", "check the path prefix, and the language codes"),
        ("none/of/these", "check the path prefix, and the language codes"),
    ],
)
def test_a_file_or_folder_is_no_prefix(tmp_path, prefix, fix):
    corpus(tmp_path / "corp")
    lang = "en" if ".en" in prefix else "gl"
    with pytest.raises(UserError) as error:
        find_side(str(tmp_path / prefix), lang)
    assert error.value.fix.startswith(fix.format(tmp_path))


def test_a_url_is_called_a_url(tmp_path):
    text = "src: gl\ntgt: en\ndata: {train: https://example.org/a/train, dev: b}\n"
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        load_recipe(tmp_path / "r.yaml")
    assert str(error.value) == (
        f"{tmp_path}/r.yaml:3:15: https://example.org/a/train is a URL, and this key needs a path\n"
        "  -> download the files and give their path; data.download names a public corpus"
    )
    with pytest.raises(UserError, match=r"command line: s3://b/dev is a URL"):
        recipe_from_text(text.replace("https://", ""), "r.yaml", ["data.dev=s3://b/dev"])
    with pytest.raises(UserError, match="this is a URL: download the file, for"):
        load_recipe("https://example.org/r.yaml")
    with pytest.raises(UserError, match=r"https://example.org/x: a URL cannot be a corpus"):
        find_side("https://example.org/x", "gl")
    with pytest.raises(UserError, match="this is a URL: download the file, for"):
        list(read_lines(Path("https://example.org/x")))
    assert recipe_from_text(text.replace("https://example.org/a", "a"), "r.yaml").src == "gl"


def test_standard_input_may_be_a_document():
    start = b"PK\x03\x04\x14\x00 [Content_Types].xml\nx\n"
    with pytest.raises(UserError, match="office document, save it as plain text") as error:
        next(StreamLines(io.BytesIO(start), "standard input"))
    assert error.value.at == "standard input"


def test_a_run_folder_with_a_typing_error_gives_its_name(tmp_path):
    (tmp_path / "runs" / "quickstart").mkdir(parents=True)
    with pytest.raises(UserError, match=f"did you mean {tmp_path}/runs/quickstart"):
        RunFolder.open(tmp_path / "runs" / "quikstart")


SCRIPTS = {
    "Latin": "Zariadenie je dostupné.", "Cyrillic": "Привет, как дела", "Greek": "γεια τι κάνεις",
    "Devanagari": "नमस्ते दुनिया", "Gurmukhi": "ਸਤ ਸ੍ਰੀ ਅਕਾਲ", "Tamil": "வணக்கம் உலகம்", "Han": "你好。",
    "Kana": "こんにちは", "Hangul": "안녕하세요",
    "Arabic": "مرحبا بالعالم", "Cherokee": "ᎣᏏᏲ ᎡᎶᎯ",
    "Ethiopic": "ሰላም ልዑል", "Thai": "สวัสดีชาวโลก", "Adlam": "𞤀𞤣𞤤𞤢𞤥 𞤆𞤵𞤤𞤢𞤪", "emoji": "a 😀 b",
}  # fmt: skip
NAMES = ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "UTF-32LE", "UTF-32BE"]


@given(
    st.lists(st.sampled_from(["", *SCRIPTS.values()]), min_size=1).filter(any),
    st.sampled_from(NAMES),
    st.sampled_from(["\n", "\r\n"]),
)
def test_other_encodings_of_unicode_are_named(lines: list[str], name: str, end: str) -> None:
    text = "".join(line + end for line in lines)
    assert unicode_encoding(text.encode(name)[:SAMPLE]) == name
    assert not unicode_encoding(text.encode()[:SAMPLE])


@given(st.text() | st.text("a\n\r\t\0é你"))
def test_utf_8_is_no_other_encoding(text: str) -> None:
    data = text.replace("\0", "x\0yz").encode()
    assert not unicode_encoding(data) or any(c < 32 and c not in b"\t\n\r" for c in data)


def refusals(path: Path) -> Iterator[str]:
    """Yield the advice of each way to read text."""
    readers = [
        lambda: list(read_lines(path)),
        lambda: read_input(str(path)),
        lambda: next(StreamLines(path.open("rb"), "x")),
        lambda: read_glossary(path),
        lambda: read_rows(path, TableFormat()),
    ]
    for reader in readers:
        with pytest.raises(UserError) as error:
            reader()
        yield error.value.fix


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("iconv"), reason="requires iconv")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_advised_command_makes_a_file_that_is_read(name, suffix, tmp_path):
    text = "".join(f"{text}\t{script}\n" for script, text in SCRIPTS.items())
    path = tmp_path / f"it's.tsv{suffix}"
    with OPENERS[suffix](path, "wb") as file:
        file.write(text.encode(name))
    advice = [read_refusal(path)] if suffix else [*refusals(path)]
    assert {re.search(r"this is ([\w-]+)", fix)[1] for fix in advice} == {name}
    command = re.search(r"convert it: (.*) > NEW", advice[0])[1]
    converted = tmp_path / "new.tsv"
    subprocess.run(f"{command} > {converted}", shell=True, check=True)
    assert [*read_lines(converted, clean=False)] == text.splitlines()


def read_refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        list(read_lines(path))
    return error.value.fix


def test_a_part_in_another_encoding_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.en"
    path.write_bytes(b"one two three\n" * 9 + "four five six\n".encode("utf-16-le"))
    with pytest.raises(UserError) as error:
        list(read_lines(path))
    assert error.value.at == f"{path}:10"
    path.write_bytes(b"one\0two three four\n\0\0\n")  # some characters alone are read as spaces
    assert list(read_lines(path)) == ["one two three four", "  "]
