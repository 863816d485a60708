"""What nmt.apps adds to the commands and to a training.

No other module of the core knows nmt.apps. ``nmt.apps.HOOKS`` names what belongs to each of these
points, and it is imported when the point is reached. Without that package, the core prepares,
trains, translates and exports, and nothing is added.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, Protocol


class Documents(Protocol):
    """Files that nmt-translate translates instead of lines."""

    def translate(self, translator: Any, options: dict[str, Any]) -> None:
        """Translate them, given a ``Translator`` and the options of the search, None = not given.

        Raises:
            UserError: one of them was not translated.
        """


def add_options(command: str, parser: argparse.ArgumentParser) -> None:
    """Add the options of a command's extension, a module with ``add_options`` and ``requested``.

    The commands are train, translate, documents (of nmt-translate) and export.
    """
    if (extension := find(command)) is not None:
        extension.add_options(parser)


def requested(command: str, args: argparse.Namespace) -> Any:
    """Check the options of an extension; return what replaces a part of the command, or None.

    For train, this is a function that runs instead of the training. For export, the output and a
    function that writes it, given run, output and arguments. For translate, a
    ``nmt.cli.output.Corpus``, and for documents, a ``Documents``.

    Raises:
        UserError: an option is wrong, or contradicts another one.
    """
    extension = find(command)
    return None if extension is None else extension.requested(args)


def find(point: str) -> Any:
    """Return what nmt.apps has for a point, None if it has nothing.

    | point | what |
    |---|---|
    | variants | the module that reads files of variants of a recipe |
    | reference | the module that adds these files to docs/recipe-keys.md |
    | advice | a function of recipe, prepared data, number of parameters: advice or None |
    | report | a function of run folder and log that writes the report of a training |
    """
    names = _table("HOOKS")
    if point not in names:
        return None
    module, _, name = names[point].partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def commands() -> Mapping[str, tuple[str, str]]:
    """Return the further commands: name -> (module, what it does)."""
    return _table("COMMANDS")


@functools.cache
def _table(name: str) -> Mapping[str, Any]:
    if importlib.util.find_spec("nmt.apps") is None:
        return {}
    return getattr(importlib.import_module("nmt.apps"), name)
