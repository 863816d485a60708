"""Files that are not text: their types by the first bytes, and how to get text from each."""

from __future__ import annotations

import zipfile
from pathlib import Path

_AS_TEXT = "save it as plain text in UTF-8, with one sentence per line"
_AS_TABLE = "import its pairs with nmt import tsv (name: .xlsx), or save a column as text"
_UTF16 = "this is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
_MAGIC = {
    b"\x28\xb5\x2f\xfd": "this is a zstd file, which is not supported: unpack it with zstd -d",
    b"\x1f\x8b": "this is a gzip file: rename it so that its name ends in .gz",
    b"\xfd7zXZ": "this is an xz file: rename it so that its name ends in .xz",
    b"BZh91AY&SY": "this is a bzip2 file: rename it so that its name ends in .bz2",
    b"7z\xbc\xaf\x27\x1c": "this is a 7z archive: unpack it with 7z x",
    b"PK\x03\x04": "this is a zip archive: unpack it, or, if it is an office document, "
    "save it as plain text in UTF-8",
    b"%PDF-": "this is a PDF file: extract its text with pdftotext, and check its lines",
    b"{\\rtf": f"this is a document in Rich Text Format: {_AS_TEXT}",
    b"\xd0\xcf\x11\xe0": "this is an old Microsoft Office file (.doc, .xls, .ppt): open it, and "
    f"{_AS_TEXT}; save a table as .xlsx",
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
}
# a name in a zip archive, or the start of its file "mimetype" -> what it is
_ZIPPED = {
    "word/document.xml": f"this is a Word document (.docx): {_AS_TEXT}",
    "xl/workbook.xml": f"this is an Excel workbook (.xlsx): {_AS_TABLE}",
    "ppt/presentation.xml": f"this is a PowerPoint file (.pptx): {_AS_TEXT}",
    "application/vnd.oasis.opendocument.text": f"this is an OpenDocument text (.odt): {_AS_TEXT}",
    "application/vnd.oasis.opendocument.spreadsheet": "this is an OpenDocument spreadsheet (.ods): "
    "save it as .xlsx and import its pairs with nmt import tsv FILE.xlsx",
    "application/epub+zip": f"this is an e-book (.epub): {_AS_TEXT}",
}


def file_type(start: bytes, path: Path | None = None) -> str:
    """Return what a file is that begins with these bytes and what to do; empty for text.

    Args:
        start: first bytes or first line of the file.
        path: the file, if its content is not compressed; tells the kinds of zip archives apart.
    """
    fix = next((fix for magic, fix in _MAGIC.items() if start.startswith(magic)), "")
    if path is None or not start.startswith(b"PK") or not path.is_file():
        return fix
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            if "mimetype" in names:
                with archive.open("mimetype") as file:
                    names.add(file.read(100).decode("utf-8", "replace").strip())
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile):
        return fix
    return next((what for name, what in _ZIPPED.items() if name in names), fix)


def type_of(path: Path) -> str:
    """Return what a regular file is and what to do; empty if it is text or cannot be read."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file_type(file.read(16), path)
    except (OSError, ValueError):
        return ""
