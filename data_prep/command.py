"""The commands ``nmt import NAME``, for public corpora and for the user's own files.

A module of a public corpus has ``prepare(request)`` and ``main = corpus_command(prepare, ...)``. A
module ``from_*`` has a reader of pairs and ``main = reader_command(read, ...)``, which filters and
splits what the reader yields.
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.languages import add_languages
from data_prep.pairs import (
    EMPTY_SIDE,
    IDENTICAL_SIDES,
    Pair,
    apply_rules,
    drop_duplicates,
    length,
    length_ratio,
)
from data_prep.released import UNALTERED
from data_prep.remote import RemoteFile
from data_prep.splits import GROUPS_PER_SPLIT, hold_out
from data_prep.write import Corpus, Request, check_request, write_corpus
from nmt.data.report import Drops
from nmt.data.text import quantity
from nmt.errors import UserError
from nmt.runtime.progress import counted

MIN_GROUPS = 10  # of --split group
MAX_WORDS = 250  # of a side
BY_HAND = "choose dev and test yourself (nmt import moses --dev PREFIX --test PREFIX)"


@dataclass(frozen=True)
class Command:
    """A command of this package, called as ``main(argv)``.

    Attributes:
        body: runs it.
        parser: returns its command line.
    """

    body: Callable[[argparse.Namespace], None]
    parser: Callable[[], argparse.ArgumentParser]

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run the command; return its exit code."""
        from nmt.cli.common import run_command  # here: nmt-train imports this module without it

        return run_command(self.body, self.parser, argv)


def corpus_command(
    prepare: Callable[[Request], None], description: str | None, pair: str = ""
) -> Command:
    """Return the command of a public corpus.

    Args:
        description: the module's docstring.
        pair: ``SRC-TGT`` if the corpus has only these two languages, or ``SRC`` if it is text of
            one language; else the languages become options.
    """

    def parser() -> argparse.ArgumentParser:
        parser = _parser(description)
        if pair:
            src, _, tgt = pair.partition("-")
            parser.set_defaults(src=src, tgt=tgt)
        else:
            add_languages(parser)
        add_local(parser)
        return parser

    return Command(lambda a: prepare(Request(a.output, a.src, a.tgt, a.force, a.local)), parser)


def own_command(
    body: Callable[[argparse.Namespace], None],
    description: str | None,
    add_options: Callable[[argparse.ArgumentParser], None],
    *,
    needs_output: bool = True,
    splits: bool = True,
) -> Command:
    """Return the command of a module that makes a corpus of the user's choice.

    Args:
        add_options: adds options of the module to the shared ones.
        needs_output: whether the command always writes a corpus.
        splits: whether it filters and splits, and has the options for that.
    """

    def parser() -> argparse.ArgumentParser:
        parser = _parser(description, needs_output)
        add_languages(parser)
        add_options(parser)
        if splits:
            _add_filters_and_splits(parser)
        return parser

    return Command(body, parser)


def reader_command(
    read: Callable[[argparse.Namespace, Drops], Iterable[Pair]],
    description: str | None,
    add_options: Callable[[argparse.ArgumentParser], None],
) -> Command:
    """Return the command that filters, splits and writes the pairs that ``read`` yields."""

    def body(args: argparse.Namespace) -> None:
        drops = Drops()
        write_own_corpus(read(args, drops), args, drops)

    return own_command(body, description, add_options)


def add_local(parser: argparse.ArgumentParser) -> None:
    """Add the option for files that are not downloaded."""
    parser.add_argument(
        "--from",
        dest="local",
        type=Path,
        metavar="LOCAL",
        help="file or folder to read instead of downloading",
    )


def add_held_out(parser: argparse.ArgumentParser, metavar: str) -> None:
    """Add the options for existing dev and test sets."""
    for split in ("dev", "test"):
        parser.add_argument(f"--{split}", metavar=metavar, help=f"existing {split} set")


def write_own_corpus(
    pairs: Iterable[Pair],
    args: argparse.Namespace,
    drops: Drops,
    held_out: Mapping[str, Iterable[Pair]] | None = None,
    sources: Sequence[RemoteFile] = (),
    notes: Sequence[str] = (),
) -> None:
    """Filter, split and write pairs.

    Args:
        pairs: are read after the options are checked.
        held_out: existing dev and test, which are copied line by line; the filters apply to the
            other pairs. None = a part of the pairs becomes dev and test.
        sources, notes: for MANIFEST.json.
    """
    request = Request(args.output, args.src, args.tgt, args.force)
    check_request(request)
    filters = [EMPTY_SIDE, IDENTICAL_SIDES, length(1, MAX_WORDS), length_ratio(args.max_ratio)]
    pairs = apply_rules(counted(pairs, "reading", "pairs"), filters, drops)
    splits: dict[str, Iterable[Pair]]
    if held_out:
        splits = {"train": drop_duplicates(pairs, drops), **held_out}
        note = f"Splits are the source's. {UNALTERED}"
    else:
        splits = {**_split(list(pairs), args, drops)}
        note = f"Split: {args.split}."
        if args.dev_size or args.test_size:
            note += " Dev and test have no near-duplicates of train or of each other."
    write_corpus(Corpus(args.output.name, splits, drops, sources, [note, *notes]), request)


def check_held_out(args: argparse.Namespace) -> bool:
    """Return whether dev and test are given.

    Raises:
        UserError: only one of them is.
    """
    if bool(args.dev) != bool(args.test):
        raise UserError(
            "--dev and --test require each other", at="--dev, --test", fix="give both or neither"
        )
    return bool(args.dev)


def _split(pairs: Sequence[Pair], args: argparse.Namespace, drops: Drops) -> dict[str, list[Pair]]:
    sizes = {"dev": args.dev_size, "test": args.test_size}
    sizes = {split: size for split, size in sizes.items() if size > 0}
    if not sizes:
        return hold_out(pairs, sizes, drops)
    if sum(sizes.values()) * 2 > len(pairs):
        size = max(GROUPS_PER_SPLIT, len(pairs) // 10)
        smaller = " ".join(f"--{split}-size {size}" for split in sizes)
        fixes = [f"pass smaller sizes, such as {smaller}"] if 4 * size <= len(pairs) else []
        left = f"{quantity(len(pairs), 'pair')} {'is' if len(pairs) == 1 else 'are'}"
        raise UserError(
            f"{left} too few for {' and '.join(map(str, sizes.values()))} in "
            f"{' and '.join(sizes)} (dropped: {drops})",
            at=", ".join(f"--{split}-size" for split in sizes),
            fix=", or ".join(fixes) or "give more text",
        )
    if args.split == "random":  # a sentence with several translations is a group
        pairs = [pair._replace(group=pair.src) for pair in pairs]
    groups = Counter(pair.group for pair in pairs)
    if args.split == "group" and len(groups) < MIN_GROUPS:
        raise UserError(
            f"at least {MIN_GROUPS} groups are required (input files, or values of nmt import tsv "
            f"--group-column), not {len(groups)}",
            at="--split group",
            fix=f"give a file for each document, {BY_HAND}, or use --split random",
        )
    smallest = min(groups.values())
    needed = smallest * GROUPS_PER_SPLIT
    if small := [split for split, size in sizes.items() if size < needed]:
        enough = 2 * sum(max(size, needed) for size in sizes.values()) <= len(pairs)
        kind, more = "", "use --split random"
        if args.split == "random":
            kind, more = " of pairs with the same source", "give more text"
        raise UserError(
            f"the smallest group{kind} has {quantity(smallest, 'pair')}, over a tenth of the split",
            at=", ".join(f"--{split}-size" for split in small),
            fix=f"ask for at least {needed:,}" if enough else f"{BY_HAND}, or {more}",
        )
    return hold_out(pairs, sizes, drops)


def _parser(description: str | None, needs_output: bool = True) -> argparse.ArgumentParser:
    from nmt.cli.parsers import command_parser

    parser = command_parser(None, description=(description or "").replace("``", "`"))
    parser.add_argument(
        "-o", "--output", type=Path, required=needs_output, metavar="DIR", help="directory to write"
    )
    parser.add_argument("--force", action="store_true", help="replace DIR if it exists")
    return parser


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not an integer of at least 0")


def _ratio(text: str) -> float:
    with contextlib.suppress(ValueError):
        number = float(text)
        if 1 < number < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a finite number above 1")


def _add_filters_and_splits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "filters (MANIFEST.json lists how many pairs each of them drops)"
    )
    group.add_argument(
        "--max-ratio",
        type=_ratio,
        default=4.0,
        metavar="R",
        help="largest ratio of the characters of the two sides; default: %(default)g",
    )
    group = parser.add_argument_group("splits")
    for split in ("dev", "test"):
        group.add_argument(
            f"--{split}-size",
            type=_count,
            default=1000,
            metavar="N",
            help=f"approximate number of {split} pairs; 0 = no {split} set; default: 1000",
        )
    group.add_argument(
        "--split",
        choices=("random", "group"),
        default="random",
        help="hold out random sentences, or complete groups, such as documents; default: random",
    )
