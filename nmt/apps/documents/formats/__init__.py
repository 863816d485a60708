"""The formats of documents: a function each, by the suffix of a file.

A format reads a file and writes it with its translations: ``convert(source, target, job)``. It
makes items of the file, and writes the text that ``Job.translated`` makes of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.apps.documents.job import Job

Format: TypeAlias = "Callable[[BinaryIO, BinaryIO, Job], None]"

# suffix -> the module of this package, and its function
FORMATS = {
    ".txt": "text:convert",
    ".md": "markdown:convert",
    ".html": "html:convert",
    ".htm": "html:convert",
    ".docx": "office:convert_docx",
    ".odt": "office:convert_odt",
    ".po": "gettext:convert",
    ".xliff": "bilingual:convert_xliff",
    ".xlf": "bilingual:convert_xliff",
    ".tmx": "bilingual:convert_tmx",
    ".srt": "subtitles:convert",
    ".vtt": "subtitles:convert",
    ".json": "text:convert_json",
}


def format_of(name: str) -> Format:
    """Return the format of a file.

    Raises:
        UserError: no format has this suffix.
    """
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise UserError(
            f"files that end in {suffix} cannot be translated"
            if suffix
            else "the name has no suffix, which tells the format",
            at=name,
            fix=f"pass a file that ends in {', '.join(FORMATS)}",
        )
    module, _, function = FORMATS[suffix].partition(":")
    found: Format = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return found
