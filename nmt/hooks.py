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
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from nmt.config.recipe import Recipe
    from nmt.data.prepare import Prepared
    from nmt.run.folder import RunFolder
    from nmt.run.metrics_log import Logger
    from nmt.training.progress import LiveView


class Extension(Protocol):
    """A module with further options of a command."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options."""

    def requested(self, args: argparse.Namespace) -> Any:
        """Check the options; return what replaces a part of the command, None if they are unused.

        For nmt-train, this is a function that runs instead of the training. For nmt-export, a
        function that writes the folder, given run and path. For nmt-translate, a
        ``nmt.cli.output.Corpus``.

        Raises:
            UserError: an option is wrong, or contradicts another one.
        """


def extension(command: str) -> Extension | None:
    """Return the extension of a command: train, translate or export."""
    return _load(command)


def variants() -> Any:
    """Return the module that reads files of variants, such as ``nmt.apps.sweep.variants``."""
    return _load("variants")


def reference() -> Any:
    """Return the module that adds to docs/recipe-keys.md, such as ``nmt.apps.sweep.reference``."""
    return _load("reference")


def live_view() -> LiveView | None:
    """Return what shows the state of a training while it runs."""
    make = _load("live_view")
    return None if make is None else make()


def advise(recipe: Recipe, prepared: Prepared, parameters: int) -> str | None:
    """Return advice on a training that is about to begin, if there is any."""
    advice = _load("advice")
    return None if advice is None else advice(recipe, prepared, parameters)


def write_report(run: RunFolder, log: Logger) -> None:
    """Write the report of a training that has ended."""
    write = _load("report")
    if write is not None:
        write(run, log)


@functools.cache
def _names() -> Mapping[str, str]:
    if importlib.util.find_spec("nmt.apps") is None:
        return {}
    return importlib.import_module("nmt.apps").HOOKS


@functools.cache
def commands() -> Mapping[str, tuple[str, str]]:
    """Return the further commands: name -> (module, what it does)."""
    if importlib.util.find_spec("nmt.apps") is None:
        return {}
    return importlib.import_module("nmt.apps").COMMANDS


def _load(point: str) -> Any:
    if point not in _names():
        return None
    module, _, name = _names()[point].partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
