"""The license of a corpus, as the files next to it say."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

MAX_README_BYTES = 1 << 20
LONGEST_LICENSE = 300  # characters that are kept
_LINE = re.compile(r"^\W*licen[cs]e\W{1,6}(?P<text>\S.*)$", re.IGNORECASE)


def licenses_of(folder: Path) -> list[str]:
    """Return the licenses of a corpus, as its MANIFEST.json or its README says; empty if unknown.

    MANIFEST.json is that of ``data.download`` and ``nmt import NAME``. A README has a line
    that begins with "License:" or "Licence:".
    """
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        manifest = json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8"))
        found = (source.get("license") for source in manifest["sources"])
        if licenses := list(dict.fromkeys(filter(None, found))):
            return licenses
    for name in ("README.md", "README", "README.txt"):
        with contextlib.suppress(OSError):
            with open(folder / name, encoding="utf-8", errors="replace") as file:
                text = file.read(MAX_README_BYTES)
            for line in text.splitlines():
                if match := _LINE.match(line):
                    return [match["text"][:LONGEST_LICENSE].strip(" *_|")]
    return []
