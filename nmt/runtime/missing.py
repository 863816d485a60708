"""Suggest the next step for a missing path: download a URL, or use a similar name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path


def url_of(path: str | Path) -> str | None:
    """Return the URL that was passed as a path, or None.

    A path loses one of the two slashes, and a relative one may follow a folder.
    """
    match = re.search(r"(?:^|/)(https?|ftp|s3|gs|hf):/+(?=[^/])(.+)", str(path))
    return f"{match[1]}://{match[2]}" if match else None


def similar_path(path: Path, ending: Callable[[Path], str | None] | None = None) -> Path | None:
    """Return a path that exists and differs from a missing one by typing errors, or None.

    Args:
        path: the missing path.
        ending: returns the name that counts for a file, or None if the file is of another kind.
    """
    try:
        parents = [parent for parent in path.parents if parent.is_dir()]
        if not parents:
            return None
        folder = parents[0]
        names = path.relative_to(folder).parts
        for position, name in enumerate(names):
            last = position == len(names) - 1
            entries = {
                (ending(entry) if last and ending else entry.name): entry
                for entry in folder.iterdir()
                if last or entry.is_dir()
            }
            close = difflib.get_close_matches(name, [n for n in entries if n], 1, cutoff=0.7)
            if name not in entries and not close:
                return None
            folder = folder / (name if name in entries else close[0])
        return folder
    except OSError:
        return None


def missing_fix(path: str | Path, key: str = "") -> str:
    """Return the next step for a missing file or folder, which a ``key`` of the recipe names."""
    if url := url_of(path):
        return (
            f"this is a URL: download the file, for example with curl -LO {url}, and give its path"
        )
    near = similar_path(Path(path))
    check = f"check the path in {key}" if key else "check the path"
    return f"{check}; did you mean {near}?" if near else check
