"""Paths as a report shows them: relative to the run folder, because reports are sent to others."""

from __future__ import annotations

import re
from pathlib import Path

_OF_A_PATH = r"[\w.~/-]"  # what stands before or after a folder that is a part of a longer name


def relative_paths(text: str, run: Path) -> str:
    """Replace the absolute paths in a text by paths relative to a run folder.

    A path that shares no folder with the run stays as it is.
    """
    for folder in dict.fromkeys([run.absolute(), run.resolve()]):
        for depth, parent in enumerate([folder, *folder.parents[:-1]]):
            name = re.escape(str(parent))
            text = re.sub(rf"(?<!{_OF_A_PATH}){name}/(?=\S)", "../" * depth, text)
            alone = "/".join([".."] * depth) or "."
            text = re.sub(rf"(?<!{_OF_A_PATH}){name}(?!{_OF_A_PATH})", alone, text)
    return text
