"""Paths and files that are not what a corpus needs are called what they are."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import openpyxl
import pytest

from data_prep import from_gettext, from_tmx, from_tsv
from nmt.cli.input import StreamLines
from nmt.config.load import load_recipe, recipe_from_text
from nmt.data.text import find_side, read_lines
from nmt.errors import UserError
from nmt.run.folder import RunFolder


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
    "xlsx": "an Excel workbook (.xlsx): import its pairs with nmt import tsv",
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
    for main in (from_tmx.main, from_tsv.main):
        assert main([str(path), *options]) == 2
        assert "a Word document (.docx)" in capsys.readouterr().err
    for main in (from_tmx.main, from_tsv.main, from_gettext.main):
        assert main(["https://example.org/a/b.tmx", *options]) == 2
        assert "this is a URL: download the file, for" in capsys.readouterr().err
        assert main([str(tmp_path / "txet.docx"), *options]) == 2
        assert f"did you mean {path}?" in capsys.readouterr().err
        os.mkfifo(pipe := tmp_path / f"{id(main)}.mo")
        assert main([str(pipe), *options]) == 2
        assert "is not a regular file" in capsys.readouterr().err


def corpus(folder: Path) -> Path:
    folder.mkdir()
    for name in ("train.gl", "train.en.gz", "dev.gl", "dev.en"):
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize(
    ("prefix", "near"),
    [
        ("corp/trian", "corp/train"),
        ("crop/train", "corp/train"),
        ("crop/trian", "corp/train"),
    ],
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
