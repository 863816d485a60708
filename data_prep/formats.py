"""The formats of ``nmt-import``: each module of ``data_prep.corpora`` and ``data_prep.importers``.

The first line of a module's docstring is its line in the list of formats. ``prepare(request)``
writes the corpus. A module may have LANGS, OPTIONS and ``show``; see ``Format``.
"""

from __future__ import annotations

import argparse
import ast
import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any

from data_prep import corpora, importers

if TYPE_CHECKING:
    from data_prep.write import Request


def _names(package: ModuleType) -> tuple[str, ...]:
    return tuple(sorted(module.name for module in iter_modules(package.__path__)))


CORPORA, IMPORTERS = _names(corpora), _names(importers)


class Option:
    """An argument or an option of a format.

    Args:
        names: of the argument, or of the option with its dashes.
        group: title above it in the help; empty = none.
        settings: see ``argparse.ArgumentParser.add_argument``.
    """

    def __init__(self, *names: str, group: str = "", **settings: Any) -> None:
        self.names, self.group, self.settings = names, group, settings


LOCAL = Option(
    "--from",
    dest="local",
    type=Path,
    metavar="LOCAL",
    help="file or folder to read instead of downloading",
)


@dataclass(frozen=True)
class Format:
    """A format, as its module declares it.

    Attributes:
        description: the docstring.
        prepare: writes the corpus that a request asks for.
        langs: the languages if there is no choice (LANGS): source and target, or one for
            monolingual text; empty = the user names two.
        options: of the format (OPTIONS); of a public corpus also ``--from``.
        show: called instead of ``prepare`` if there is no folder to write; None = it is required.
    """

    name: str
    description: str
    prepare: Callable[[Request], None]
    langs: tuple[str, ...]
    options: Sequence[Option]
    show: Callable[[Request], None] | None

    @classmethod
    def load(cls, name: str) -> Format:
        """Import the module of a format."""
        module = importlib.import_module(f"{_package(name).__name__}.{name}")
        own = getattr(module, "OPTIONS", ())
        return cls(
            name,
            module.__doc__ or "",
            module.prepare,
            getattr(module, "LANGS", ()),
            (LOCAL, *own) if name in CORPORA else own,
            getattr(module, "show", None),
        )

    def write(self, request: Request) -> None:
        """Check a request, then write its corpus.

        Raises:
            UserError: the folder or the languages cannot be used.
        """
        from data_prep.write import check_request

        check_request(request, monolingual=len(self.langs) == 1)
        self.prepare(request)


def _package(name: str) -> ModuleType:
    return corpora if name in CORPORA else importers


def first_line(name: str) -> str:
    """Return the first line of a format's description, without an import of its module."""
    path = Path(_package(name).__path__[0], f"{name}.py")
    description = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return description.partition("\n")[0].rstrip(".")


def add_options(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Add the options of a format to a command line."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for option in options:
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        groups[option.group].add_argument(*option.names, **option.settings)
