"""Download the public corpus that a recipe names, if its files are missing."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from data_prep.formats import CORPORA, LOCAL, Format, add_options
from nmt.config.recipe import Recipe
from nmt.errors import UserError


def obtain_corpus(recipe: Recipe) -> None:
    """Write the corpus that ``data.download`` names, if files of it are missing.

    Corpora of other languages than the recipe's are not downloaded.

    Raises:
        UserError: there is no such corpus, its folder has other files, or the source cannot be
            reached.
    """
    name, data = recipe.data.download, recipe.data
    if name is None:
        return
    from nmt.data.bitext import missing_files  # here: help and errors of commands do not need it

    _check_name(name)
    langs = (recipe.src, recipe.tgt)
    own = [Path(entry.path).parent for entry in data.train if entry.langs(recipe) == langs]
    dev_folder = Path(data.dev[0].path).parent
    # the module does not write other folders, such as those of synthetic pairs
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
            fix=f"move or delete this folder, or replace all its files: nmt-import {name} "
            "--help; or check the paths of data.train, data.dev and data.test",
        )
    print(f"downloading the corpus with nmt-import {name}", file=sys.stderr)
    try:
        _download(name, folder, *langs)
    except UserError:
        if missing_files(recipe):  # otherwise another process has downloaded the same corpus
            raise


def _check_name(text: str) -> None:
    """Raise UserError if no corpus has this name, or if it takes no options and has some."""
    from data_prep.languages import check_choice

    name, *words = text.split() or [text]
    check_choice(name, CORPORA, "corpus", "data.download")
    if words and list(Format.load(name).options) == [LOCAL]:
        raise UserError(
            f"the corpus {name} takes no options, and here is {words[0]!r}",
            at="data.download",
            fix=f"write data.download: {name}",
        )


def _download(text: str, folder: Path, src: str, tgt: str) -> None:
    """Write a corpus into a new folder; ``text`` is its name, and words of its command."""
    from data_prep.remote import DownloadError
    from data_prep.write import Request

    name, *words = text.split()
    corpus = Format.load(name)
    parser = _Words(name)
    add_options(parser, corpus.options)
    options = parser.parse_args(words)
    try:
        corpus.write(Request(folder, src, tgt, local=options.local, options=options))
    except DownloadError as error:
        languages = f" (with --src-lang {src} --tgt-lang {tgt} if it requires them)" if tgt else ""
        raise UserError(
            error.what,
            at=error.at,
            fix=f"check the network and run the same command again; or {error.copy} and run "
            f"nmt-import {text} --from {error.local} -o {shlex.quote(str(folder))}{languages}"
            "; or set data.train, data.dev and data.test to files of your own",
        ) from error


class _Words(argparse.ArgumentParser):
    """Reads the words that follow the name of a corpus in ``data.download``."""

    def __init__(self, corpus: str) -> None:
        super().__init__(prog=corpus, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        raise UserError(
            message,
            at=f"data.download: {self.prog}",
            fix=f"write the options of nmt-import {self.prog}, without those of languages and "
            "output",
        )
