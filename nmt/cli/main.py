"""nmt: all commands under one name, ``nmt train`` for ``nmt-train``.

A command is a module with ``parser`` and ``main``. It is imported when it is called.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nmt.cli.parsers import table
from nmt.version import __version__

if TYPE_CHECKING:
    import argparse

COMMANDS = {
    "import": "make a corpus from your files, or download a public one",
    "suggest": "write a recipe for a corpus, with the expected training time",
    "prepare": "check, segment and encode a corpus in advance",
    "train": "train a model: raw text to test score",
    "translate": "translate text, or score given translations",
    "documents": "translate documents, and keep their formatting",
    "synthesize": "translate text into a parallel corpus, for back-translation",
    "average": "make a model from one or several checkpoints of a run",
    "export": "write a model as a folder for CTranslate2",
    "completion": "print the completion of these commands for bash or zsh",
    "clean": "drop bad pairs from parallel text",
    "score": "compute BLEU, chrF and TER, with intervals and significance",
    "calibrate": "learn to predict the chrF of translations, for reviewers",
    "sheet": "write a workbook for people who judge systems blindly",
    "judge": "compare systems, using the workbooks that judges filled in",
    "report": "write an HTML report of one or several runs",
    "sweep": "train variants with several seeds, and compare them",
    "serve": "serve models over HTTP, with a page to try them on",
    "convert": "make a model from a public one: OPUS-MT, NLLB-200, M2M-100, mBART-50",
    "plot": "draw learning curves and the papers' figures",
}
HELP = """\
usage: nmt COMMAND [arguments]

Train and use translation models for languages with little data.

{commands}

Each command has --help. A command is also a program: nmt-train is nmt train.

examples:
  nmt-train recipes/quickstart.yaml
  echo 'Nastavenia' | nmt-translate runs/quickstart
  nmt-import tsv pairs.tsv --src-lang gl --tgt-lang en -o corpus

exit codes:
  0    success
  2    wrong arguments, recipe or input
  3    failure during the run, for example a diverged run
  4    environment error: disk, device, permission, a folder in use
  129  terminated (SIGHUP)
  130  interrupted (Ctrl-C)
  141  the reader of the output closed it
  143  terminated (SIGTERM)
"""


class Program(NamedTuple):
    """The functions of a command."""

    main: Callable[[], int]
    parser: Callable[[], argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words.pop(0) if words else "--help"
    if name in ("--help", "-h"):
        print(HELP.format(commands=table(COMMANDS)), end="")
        return 0
    if name == "--version":
        print(f"nmt {__version__}")
        return 0
    modules = commands()
    if name not in modules:
        near = difflib.get_close_matches(name, modules, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        message = f"nmt: no command {name!r}{hint}\n  -> nmt lists all of them"
        print(message, file=sys.stderr)
        return 2
    sys.argv = [f"nmt {name}", *words]  # the name of the command in its messages
    return program(modules[name]).main()


def program(module: str) -> Program:
    """Import the command that a module has."""
    command = importlib.import_module(module)
    return Program(command.main, command.parser)


def commands() -> dict[str, str]:
    """Return the module of each command."""
    modules = {name: f"nmt.cli.{name}" for name in COMMANDS}
    return modules | {"import": "nmt.cli.import_corpus"}  # import is a keyword of Python


if __name__ == "__main__":
    sys.exit(main())
