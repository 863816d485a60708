"""Search options as flags, and the translator they apply to, for all commands that translate."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.common import add_model_options, enable_gc
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.decoding.options import Excludes, SearchOptions
    from nmt.decoding.translator import Translator

# files with one line for each line of the input
CONSTRAINT_FILES = {
    "prefix": "line n is the start of translation n; blank = none",
    "require": "line n lists the phrases that translation n must contain, separated by tabs; "
    "blank = none",
}
SCORES = "scores and alignment"
# title of a group of search options -> its options; others are listed under "search"
OPTION_GROUPS = {
    "sampling": ("sample", "temperature", "top_k", "top_p", "seed"),
    "constraints": ("glossary", *CONSTRAINT_FILES),
    "choice among candidates": (
        "reverse_weight", "reverse_tag", "reverse_tgt_tag", "candidates",
    ),
    SCORES: ("token_scores", "align"),
}  # fmt: skip
FLAGS = {"src": "--src-lang", "targets": "--score-target"}  # with names of their own


def as_flag(name: str) -> str:
    """Return the flag of a search option or argument."""
    return FLAGS.get(name) or "--" + name.replace("_", "-")


def note(text: str) -> None:
    """Print a note to standard error."""
    print(f"note: {text}", file=sys.stderr)


# ---------------------------------------------------------------- command line


def add_runs(p: argparse.ArgumentParser) -> None:
    """Add one or several RUN."""
    p.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help="run folder from nmt-train, or model from nmt-convert, nmt-average or nmt-export; "
        "several with the same vocabulary are an ensemble",
    )


def add_search_options(
    p: argparse.ArgumentParser, without: Collection[str] = ()
) -> dict[str, argparse._ArgumentGroup]:
    """Add the options of the model and of its search; return the groups of OPTION_GROUPS.

    Search options and files of constraints are None by default.

    Args:
        without: search options and files of constraints that the command does not have.
    """
    from nmt.config.recipe import SearchConfig
    from nmt.decoding.options import DEFAULT_REVERSE_WEIGHT, SearchOptions

    _add_model(p)
    recipe_flags = [as_flag(name) for name in SearchConfig.model_fields]
    search = p.add_argument_group(
        "search",
        f"the recipe's decode keys set the defaults of {', '.join(recipe_flags[:-1])} and "
        f"{recipe_flags[-1]}",
    )
    groups = {title: p.add_argument_group(title) for title in OPTION_GROUPS}
    group_of = {name: groups[title] for title, names in OPTION_GROUPS.items() for name in names}
    for name in SearchOptions.model_fields:
        if name not in without:
            group_of.get(name, search).add_argument(
                as_flag(name), dest=name, default=None, **_flag_of(name)
            )
    groups["choice among candidates"].add_argument(
        "--reverse",
        action="append",
        metavar="RUN",
        help="rerank the candidates with a reverse model or run: score + "
        f"--reverse-weight (default: {DEFAULT_REVERSE_WEIGHT}) x score of the source given the "
        "candidate; several are an ensemble",
    )
    for name, meaning in CONSTRAINT_FILES.items():
        if name not in without:
            group_of[name].add_argument(as_flag(name), metavar="FILE", help=meaning)
    return groups


def _add_model(p: argparse.ArgumentParser) -> None:
    model = p.add_argument_group("model")
    add_model_options(model)
    model.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of batches that CTranslate2 searches in parallel on a CPU, each on one core; "
        "default: all cores that the CPU affinity, the container's quota and OMP_NUM_THREADS allow",
    )
    model.add_argument(
        "--verbose", action="store_true", help="print which engine searches, and why if it is torch"
    )


def _flag_of(name: str) -> dict[str, Any]:
    """Return the arguments of ``add_argument`` for a search option."""
    from nmt.config.errors import format_value
    from nmt.config.recipe import SearchConfig
    from nmt.config.schema import leaf_types, meanings
    from nmt.decoding.options import SearchOptions

    field = SearchOptions.model_fields[name]
    types = leaf_types(field.annotation)
    choices = [leaf for leaf in types if isinstance(leaf, str)]  # of a Literal
    meaning = meanings(SearchOptions)[name].removeprefix("true = ")
    if name not in SearchConfig.model_fields and field.default:  # of no recipe
        meaning += f"; default: {format_value(field.default)}"
    kind: dict[str, Any]
    if bool in types:
        kind = {"action": "store_true"}
    elif choices:
        kind = {"choices": choices}
    elif int in types or float in types:
        number, metavar = (int, "N") if int in types else (float, "X")
        kind = {"type": number, "metavar": metavar}
    elif name == "src" or name.endswith("tag"):
        kind = {"metavar": "LANG" if name == "src" else "TAG"}
    else:
        kind, meaning = {"metavar": "FILE"}, f"file with {meaning}; one per line, with a tab"
    return {"help": meaning, **kind}


# ---------------------------------------------------------------- arguments


def search_options_of(args: argparse.Namespace, excludes: Excludes | None = None) -> SearchOptions:
    """Check the search options among the arguments, before torch is imported.

    Args:
        excludes: what other arguments of the command exclude.
    """
    from nmt.data.glossary import read_glossary
    from nmt.decoding.options import EXCLUDES, SearchOptions, search_options

    values = {name: getattr(args, name, None) for name in SearchOptions.model_fields}
    for name in (*CONSTRAINT_FILES, "glossary"):
        file = getattr(args, name, None)
        if file is not None and not os.path.exists(file):  # perhaps a phrase instead of a file
            raise UserError(
                f"there is no file {file}",
                at=as_flag(name),
                fix="write phrases or terms to a file and pass its path; --help-all explains it",
            )
    if args.glossary is not None:
        values["glossary"] = tuple(read_glossary(Path(args.glossary)))
    others = {name for name, value in vars(args).items() if value}
    excludes = {**EXCLUDES, **(excludes or {})}
    return search_options(values, others - values.keys(), as_flag, excludes)


def constraints_of(args: argparse.Namespace, total: int | None) -> dict[str, Iterator[Any]]:
    """Return the constraints of each line, as arguments of ``Translator.stream``.

    Args:
        total: number of lines of the input; None = unknown.
    """
    from nmt.cli.input import read_parallel

    constraints: dict[str, Iterator[Any]] = {}
    if args.prefix is not None:
        constraints["prefix"] = read_parallel(args.prefix, total)
    if args.require is not None:
        constraints["require"] = (
            [phrase for phrase in line.split("\t") if phrase.strip()]
            for line in read_parallel(args.require, total)
        )
    return constraints


# ---------------------------------------------------------------- translator


def open_translator(
    args: argparse.Namespace, chosen: SearchOptions
) -> tuple[Translator, SearchOptions]:
    """Load the translator and complete the search options for it; print notes on both."""
    translator = _load(args)
    enable_gc()
    options = translator.check_options(chosen)
    if args.verbose:
        note("engine " + ", because ".join(engine_of(translator, options).values()))
    if options.tag is None and translator.codec.directions.always_tagged:
        tags = ", ".join(f'"{tag}"' for tag in translator.codec.vocab.tags)
        note(
            "all training data of this model had a tag before the source, and this input has "
            f"none; choose one with --tag: {tags}"
        )
    return translator, options


def engine_of(translator: Translator, options: SearchOptions) -> dict[str, str]:
    """Return the engine of a search, and why it is torch, if it is."""
    why = translator.why_torch(options)
    return {"engine": translator.engine_for(options).name} | ({"why_torch": why} if why else {})


def _load(args: argparse.Namespace) -> Translator:
    from nmt.decoding.translator import Translator

    return Translator.load(
        args.run,
        args.device,
        args.precision,
        args.workers,
        args.reverse,
        args.engine,
        args.quantization,
    )
