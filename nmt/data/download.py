"""Download the corpus of a recipe if its files are missing."""

from __future__ import annotations

import importlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe


def obtain_corpus(recipe: Recipe) -> None:
    """Run the module that ``data.download`` names, if files of the corpus are missing.

    Corpora of other languages than the recipe's are not downloaded.

    Raises:
        UserError: data_prep has no such module, the folder of the corpus has other files, or the
            source cannot be reached.
    """
    from nmt.data.bitext import missing_files

    name = recipe.data.download
    if name is None:
        return
    from data_prep import CORPORA
    from data_prep.languages import check_choice

    check_choice(name, CORPORA, "corpus", "data.download")
    langs = (recipe.src, recipe.tgt)
    own = [Path(entry.path).parent for entry in recipe.data.train if entry.langs(recipe) == langs]
    dev_folder = Path(recipe.data.dev[0].path).parent
    # another folder, such as that of synthetic pairs, is not what the module writes
    folder = dev_folder if dev_folder in own or not own else own[0]
    missing = [path for path in map(Path, missing_files(recipe)) if path.parent == folder]
    if not missing:
        return
    from data_prep.remote import DownloadError
    from data_prep.write import Request

    module = importlib.import_module(f"data_prep.{name}")
    if folder.is_dir() and any(folder.iterdir()):
        names = ", ".join(path.name for path in missing)
        raise UserError(
            f"files of the corpus are missing here ({names}), and data.download only writes a new "
            "folder",
            at=str(folder),
            fix=f"move or delete this folder, or replace all its files: nmt import {name} "
            "--help; or check the paths of data.train, data.dev and data.test",
        )
    print(f"downloading the corpus with data_prep.{name}", file=sys.stderr)
    try:
        module.prepare(Request(folder, *langs))
    except UserError as error:
        if not missing_files(recipe):
            return  # another process has downloaded the same corpus meanwhile
        if isinstance(error, DownloadError):
            languages = f" --src-lang {recipe.src} --tgt-lang {recipe.tgt}" if recipe.tgt else ""
            raise UserError(
                error.what,
                at=error.at,
                fix=f"check the network and run the same command again; or {error.copy} and run "
                f"nmt import {name} --from {error.local} -o {shlex.quote(str(folder))}"
                + (f" (with{languages} if it requires them)" if languages else "")
                + "; or set data.train, data.dev and data.test to files of your own",
            ) from error
        raise
