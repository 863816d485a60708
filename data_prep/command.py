"""The commands ``nmt import NAME``, for public corpora and for the user's own files.

A module of a public corpus has ``prepare(request)`` and ``main = corpus_command(prepare, ...)``. A
module ``from_*`` has a reader of pairs and ``main = reader_command(read, ...)``, which filters what
the reader yields, and cuts the held-out sets that do not exist.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.languages import add_languages
from data_prep.pairs import (
    EMPTY_SIDE,
    IDENTICAL_SIDES,
    MAX_RATIO,
    Pair,
    apply_rules,
    drop_duplicates,
    length,
    unusual_ratio,
)
from data_prep.remote import RemoteFile
from data_prep.splits import GROUPS_PER_SPLIT, cut, near_duplicates
from data_prep.write import Corpus, Request, check_request, write_corpus
from nmt.data.report import Drops
from nmt.data.text import quantity
from nmt.errors import UserError
from nmt.runtime.progress import counted

MIN_GROUPS = 10  # of --split group
MAX_WORDS = 250  # of a side
BY_HAND = "choose dev and test yourself (--dev, --test)"


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
    read: Callable[[Sequence[Path], argparse.Namespace, Drops], Iterable[Pair]],
    description: str | None,
    add_options: Callable[[argparse.ArgumentParser], None],
    metavar: str,
) -> Command:
    """Return the command that filters, splits and writes the pairs that ``read`` yields.

    Args:
        read: files, options, drops -> pairs.
        metavar: of a file.
    """

    def body(args: argparse.Namespace) -> None:
        drops = Drops()
        check_sets(args.files, args, metavar)
        held_out = {split: read([Path(f)], args, drops) for split, f in existing(args).items()}
        train = read(args.files, args, drops) if args.files else ()
        write_own_corpus(train, args, drops, held_out)

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", type=Path, metavar=metavar, help="training pairs")
        add_held_out(parser, metavar)
        add_options(parser)

    return own_command(body, description, options)


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
        parser.add_argument(
            f"--{split}",
            metavar=metavar,
            help=f"existing {split} set, which is not filtered; default: cut from the "
            "training pairs",
        )


def existing(args: argparse.Namespace) -> dict[str, str]:
    """Return the existing held-out sets that the options name, by split."""
    return {split: name for split in ("dev", "test") if (name := vars(args)[split])}


def check_sets(train: Sequence[object], args: argparse.Namespace, metavar: str) -> None:
    """Raise UserError if neither training pairs nor a held-out set is named."""
    if not train and not existing(args):
        raise UserError("no text is named", at=metavar, fix=f"name a {metavar} with training pairs")


def write_own_corpus(
    pairs: Iterable[Pair],
    args: argparse.Namespace,
    drops: Drops,
    held_out: Mapping[str, Iterable[Pair]] = {},
    sources: Sequence[RemoteFile] = (),
    notes: Sequence[str] = (),
    further: Mapping[str, Iterable[Pair]] = {},
) -> None:
    """Filter, split and write pairs.

    Args:
        pairs: training pairs, read after the options are checked. If there are some, dev and test
            are cut from them, unless ``held_out`` has them.
        held_out: existing dev and test sets, which are copied line by line.
        sources, notes: for MANIFEST.json.
        further: further training text by the name of its files. It loses near-duplicates of dev
            and test.
    """
    request = Request(args.output, args.src, args.tgt, args.force)
    check_request(request)
    kept = {split: list(part) for split, part in held_out.items()}
    splits = _split(_filtered(pairs, "train", args, drops), kept, args, drops)
    order = ("train", "dev", "test")
    splits = {split: splits[split] for split in order if split in splits}
    for name, text in further.items():
        filtered = list(drop_duplicates(_filtered(text, name, args, drops), drops))
        near = set[int]()
        if tested := [pair for split in order[1:] for pair in splits.get(split, ())]:
            near = near_duplicates(filtered, tested)
        for i in sorted(near):
            drops[f"{name}: near-duplicate in dev or test"].add(filtered[i].place)
        splits[name] = [pair for i, pair in enumerate(filtered) if i not in near]
    if kept:
        notes = [f"Existing sets, with each of their lines: {', '.join(kept)}.", *notes]
    if made := [split for split in splits if split in order[1:] and split not in kept]:
        notes = [
            f"Cut from the training pairs (--split {args.split}): {', '.join(made)}. No cut set "
            "has near-duplicates in train or in another set.",
            *notes,
        ]
    write_corpus(Corpus(args.output.name, splits, drops, sources, list(notes)), request)


def _filtered(
    pairs: Iterable[Pair], name: str, args: argparse.Namespace, drops: Drops
) -> list[Pair]:
    alone = [EMPTY_SIDE, IDENTICAL_SIDES, length(1, MAX_WORDS)]
    kept = list(apply_rules(counted(pairs, f"reading {name}", "pairs"), alone, drops))
    return list(apply_rules(kept, [unusual_ratio(kept, args.max_ratio)], drops))


def _split(
    pairs: Sequence[Pair], kept: Mapping[str, list[Pair]], args: argparse.Namespace, drops: Drops
) -> dict[str, list[Pair]]:
    sizes = {"dev": args.dev_size, "test": args.test_size}
    sizes = {split: size for split, size in sizes.items() if size > 0 and split not in kept}
    if not sizes or (kept and not pairs):
        train = {"train": list(drop_duplicates(pairs, drops))} if pairs or not kept else {}
        return {**train, **kept}
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
    splits = cut(pairs, sizes, drops, [pair for part in kept.values() for pair in part])
    for split, size in sizes.items():
        if (count := len(splits[split])) < size:
            most = size // GROUPS_PER_SPLIT
            print(
                f"note: {split} has {quantity(count, 'pair')} instead of {size:,}, because no "
                f"other fits: each has over {most:,} near-duplicates, has one in another held-out "
                f"set, or is in a group of over {most:,} pairs or of more than are missing",
                file=sys.stderr,
            )
    return {**splits, **kept}


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
        metavar="R",
        help="largest ratio of the lengths of the two sides, divided by the median ratio of the "
        f"text; default: {MAX_RATIO:g}, or more if the ratios of the text vary more",
    )
    group = parser.add_argument_group("splits")
    for split in ("dev", "test"):
        group.add_argument(
            f"--{split}-size",
            type=_count,
            default=1000,
            metavar="N",
            help=f"number of pairs to cut for {split}, if it does not exist; 0 = none; default: "
            "1000",
        )
    group.add_argument(
        "--split",
        choices=("random", "group"),
        default="random",
        help="hold out random sentences, or complete groups, such as documents; default: random",
    )
