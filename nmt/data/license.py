"""The license of a corpus, as the files next to it say."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

from nmt.errors import UserError
from nmt.runtime.files import read_text

UNREADABLE = (OSError, UserError)
LONGEST_LICENSE = 300  # characters that are kept
_LINE = re.compile(r"^\W*licen[cs]e\W{1,6}(?P<text>\S.*)$", re.IGNORECASE)


def licenses_of(folder: Path) -> list[str]:
    """Return the licenses of a corpus, as its MANIFEST.json or its README says; empty if unknown.

    MANIFEST.json is that of ``data.download`` and ``nmt import NAME``. A README has a line
    that begins with "License:" or "Licence:".
    """
    with contextlib.suppress(*UNREADABLE, ValueError, TypeError, AttributeError, RecursionError):
        manifest = json.loads(read_text(folder / "MANIFEST.json"))
        found = (source.get("license") for source in manifest["sources"])
        if licenses := list(dict.fromkeys(filter(None, found))):
            return licenses
    for name in ("README.md", "README", "README.txt"):
        with contextlib.suppress(*UNREADABLE):
            text = read_text(folder / name, errors="replace")
            for line in text.splitlines():
                if match := _LINE.match(line):
                    return [match["text"][:LONGEST_LICENSE].strip(" *_|")]
    return []
