"""Where a recipe's corpus comes from when its files are not there."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from nmt.config import Recipe
from nmt.data.prepare import missing_files
from nmt.errors import UserError


def obtain_corpus(recipe: Recipe) -> None:
    """Fetch the corpus with ``data.prepare`` when files are missing.

    Raises:
        UserError: data.prepare names no module of data_prep, or the source cannot be reached.
    """
    name = recipe.data.prepare
    if name is None or not missing_files(recipe):
        return
    try:
        module = importlib.import_module(f"data_prep.{name}")
    except ModuleNotFoundError as error:
        raise UserError(
            f'"{name}" is no module of data_prep', at="data.prepare", fix="see data_prep/"
        ) from error
    print(f"making the corpus with data_prep.{name}", file=sys.stderr)
    module.prepare(Path(recipe.data.train[0]).parent)
