"""Corpora: one module each, which writes {train,dev,test}.{src,tgt} and MANIFEST.json.

``nmt import NAME -o DIR [--src-lang X --tgt-lang Y] [--from LOCAL]`` writes one. A recipe names a
module in ``data.download``; nmt-train writes its corpus if the recipe's files are missing. Modules
``from_*`` read the user's own files. All write plain text: tokenization and segmentation belong to
the run.
"""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from pkgutil import iter_modules

_SHARED = {
    *("clean", "command", "dual", "identify", "languages", "pairs", "released", "remote", "rules"),
    *("numbers", "spelling", "splits", "tables", "write"),
}
_WITH_OPTIONS = {
    "mtdata"
}  # corpora whose name in data.download is followed by words of the command

# What data.download may name: each module of a public corpus registers by its file name.
CORPORA = tuple(
    sorted(
        module.name
        for module in iter_modules(__path__)
        if module.name not in _SHARED and not module.name.startswith("from_")
    )
)


def check_name(text: str) -> None:
    """Raise UserError if no corpus has the name that ``data.download`` of a recipe gives."""
    from data_prep.languages import check_choice
    from nmt.errors import UserError

    name, *options = text.split() or [text]
    check_choice(name, CORPORA, "corpus", "data.download")
    if options and name not in _WITH_OPTIONS:
        raise UserError(
            f"the corpus {name} takes no options, and here is {options[0]!r}",
            at="data.download",
            fix=f"write data.download: {name}",
        )


def download(text: str, folder: Path, src: str, tgt: str) -> None:
    """Write the corpus that a recipe names into a new folder.

    Args:
        text: name of the corpus; after ``mtdata``, also what ``nmt import mtdata`` takes.

    Raises:
        UserError: the source cannot be reached; the advice is for a recipe.
    """
    from data_prep.remote import DownloadError
    from data_prep.write import Request
    from nmt.errors import UserError

    name, *options = text.split()
    try:
        request = Request(folder, src, tgt, options=tuple(options))
        importlib.import_module(f"data_prep.{name}").prepare(request)
    except DownloadError as error:
        languages = f" (with --src-lang {src} --tgt-lang {tgt} if it requires them)" if tgt else ""
        raise UserError(
            error.what,
            at=error.at,
            fix=f"check the network and run the same command again; or {error.copy} and run "
            f"nmt import {text} --from {error.local} -o {shlex.quote(str(folder))}{languages}"
            "; or set data.train, data.dev and data.test to files of your own",
        ) from error
