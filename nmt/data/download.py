"""Public corpora: download that of a recipe if files are missing; what MANIFEST.json says."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import UserError
from nmt.runtime.files import json_object, read_text

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe

MANIFEST = "MANIFEST.json"  # that nmt import and nmt-clean write next to a corpus
LONGEST_LICENSE = 300  # characters that are kept
_UNREADABLE = (OSError, UserError)
_LICENSE = re.compile(r"^\W*licen[cs]e\W{1,6}(?P<text>\S.*)$", re.IGNORECASE)


def obtain_corpus(recipe: Recipe) -> None:
    """Run the module that ``data.download`` names, if files of the corpus are missing.

    Corpora of other languages than the recipe's are not downloaded.

    Raises:
        UserError: data_prep has no such module, the folder of the corpus has other files, or the
            source cannot be reached.
    """
    name, data = recipe.data.download, recipe.data
    if name is None:
        return
    from nmt.data.bitext import missing_files  # here: help and errors of commands do not need it

    data_prep = importlib.import_module("data_prep")  # by its name: it imports nmt
    data_prep.check_name(name)
    langs = (recipe.src, recipe.tgt)
    own = [Path(entry.path).parent for entry in data.train if entry.langs(recipe) == langs]
    dev_folder = Path(data.dev[0].path).parent
    # another folder, such as that of synthetic pairs, is not what the module writes
    folder = dev_folder if dev_folder in own or not own else own[0]
    missing = [path for path in map(Path, missing_files(recipe)) if path.parent == folder]
    if not missing:
        return
    if folder.is_dir() and any(folder.iterdir()):
        names = ", ".join(path.name for path in missing)
        raise UserError(
            f"files of the corpus are missing here ({names}), and data.download only writes a new "
            "folder",
            at=str(folder),
            fix=f"move or delete this folder, or replace all its files: nmt import {name} "
            "--help; or check the paths of data.train, data.dev and data.test",
        )
    print(f"downloading the corpus with nmt import {name}", file=sys.stderr)
    try:
        data_prep.download(name, folder, *langs)
    except UserError:
        if missing_files(recipe):  # otherwise another process has downloaded the same corpus
            raise


def languages_of(folder: Path) -> tuple[str, ...]:
    """Return source and target of a corpus, as its MANIFEST.json says; empty if unknown."""
    with contextlib.suppress(*_UNREADABLE, ValueError, TypeError):
        manifest = json_object(read_text(folder / MANIFEST))
        src, tgt = manifest.get("src"), manifest.get("tgt")
        if src and tgt and isinstance(src, str) and isinstance(tgt, str):
            return src, tgt
    return ()


def licenses_of(folder: Path) -> list[str]:
    """Return the licenses of a corpus, as its MANIFEST.json or its README says; empty if unknown.

    MANIFEST.json is that of ``data.download`` and ``nmt import NAME``. A README has a line
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
