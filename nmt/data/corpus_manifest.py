"""Read the languages and licenses of a corpus from MANIFEST.json."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from nmt.errors import UserError
from nmt.runtime.files import json_object, read_text

MANIFEST = "MANIFEST.json"  # that nmt-import and nmt-clean write next to a corpus
LONGEST_LICENSE = 300  # characters that are kept
_UNREADABLE = (OSError, UserError)
_LICENSE = re.compile(r"^\W*licen[cs]e\W{1,6}(?P<text>\S.*)$", re.IGNORECASE)


def languages_of(folder: Path) -> tuple[str, ...]:
    """Return the source and target language of a corpus from its MANIFEST.json; empty if
    unknown."""
    with contextlib.suppress(*_UNREADABLE, ValueError, TypeError):
        manifest = json_object(read_text(folder / MANIFEST))
        src, tgt = manifest.get("src"), manifest.get("tgt")
        if src and tgt and isinstance(src, str) and isinstance(tgt, str):
            return src, tgt
    return ()


def licenses_of(folder: Path) -> list[str]:
    """Return the licenses of a corpus from its MANIFEST.json or README; empty if unknown.

    MANIFEST.json is that of ``data.download`` and ``nmt-import NAME``. A README has a line
    that begins with "License:" or "Licence:".
    """
    with contextlib.suppress(*_UNREADABLE, ValueError, TypeError, AttributeError):
        manifest = json_object(read_text(folder / MANIFEST))
        found = (source.get("license") for source in manifest["sources"])
        if licenses := list(dict.fromkeys(filter(None, found))):
            return licenses
    for name in ("README.md", "README", "README.txt"):
        with contextlib.suppress(*_UNREADABLE):
            text = read_text(folder / name, errors="replace")
            for line in text.splitlines():
                if match := _LICENSE.match(line):
                    return [match["text"][:LONGEST_LICENSE].strip(" *_|")]
    return []
