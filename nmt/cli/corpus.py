"""Where a recipe's corpus comes from when its files are not there."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe


def obtain_corpus(recipe: Recipe) -> None:
    """Download the corpus with ``data.download`` when files are missing.

    Raises:
        UserError: data.download names no corpus of data_prep, or the source cannot be reached.
    """
    from nmt.data.prepare import missing_files

    name = recipe.data.download
    if name is None:
        return
    from data_prep import CORPORA
    from data_prep.languages import check_choice

    check_choice(name, CORPORA, "corpus", "data.download")
    if not missing_files(recipe):
        return
    from data_prep.write import Request

    module = importlib.import_module(f"data_prep.{name}")
    print(f"making the corpus with data_prep.{name}", file=sys.stderr)
    module.prepare(Request(Path(recipe.data.train[0]).parent, recipe.src, recipe.tgt))
