"""What the commands for one's own corpora share: filters, splits, and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence

from data_prep.common import (
    Command,
    Corpus,
    Request,
    add_languages,
    check_request,
    finish,
    parser_for,
)
from data_prep.languages import known
from data_prep.pairs import (
    Drops,
    Filter,
    Pair,
    apply_filters,
    empty_side,
    identical_sides,
    length,
    length_ratio,
    scripts,
    wrong_script,
)
from data_prep.splits import hold_out
from nmt.errors import UserError

Read = Callable[[argparse.Namespace, Drops], Iterable[Pair]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Languages, filters and splits."""
    add_languages(parser)
    group = parser.add_argument_group("filters (each reports what it took)")
    group.add_argument("--min-words", type=int, default=1, metavar="N")
    group.add_argument("--max-words", type=int, default=250, metavar="N")
    group.add_argument(
        "--max-ratio", type=float, default=4.0, metavar="R", help="of characters; default 4"
    )
    for side in ("src", "tgt"):
        group.add_argument(
            f"--script-{side}",
            metavar="NAME",
            help=f"script of most of {side}'s letters, such as LATIN or HIRAGANA,CJK",
        )
    group.add_argument(
        "--keep-identical", action="store_true", help="keep pairs whose sides are the same text"
    )
    group = parser.add_argument_group("splits")
    group.add_argument("--dev-size", type=int, default=1000, metavar="N", help="pairs, about")
    group.add_argument("--test-size", type=int, default=1000, metavar="N", help="pairs, about")
    group.add_argument(
        "--split",
        choices=("random", "group"),
        default="random",
        help="random sentences, or whole groups (documents); repeats never cross a split",
    )


def filters_from(args: argparse.Namespace) -> list[Filter]:
    """The filters that the options ask for, cheap ones first."""
    filters = [empty_side()]
    if not args.keep_identical:
        filters.append(identical_sides())
    filters += [length(args.min_words, args.max_words), length_ratio(args.max_ratio)]
    if args.script_src or args.script_tgt:
        there = scripts()
        for side in ("src", "tgt"):
            for name in (vars(args)[f"script_{side}"] or "LATIN").split(","):
                known(name, there, "script", f"--script-{side}")
        filters.append(wrong_script(args.script_src, args.script_tgt))
    return filters


def _split(pairs: Sequence[Pair], args: argparse.Namespace, drops: Drops) -> dict[str, list[Pair]]:
    sizes = {"dev": args.dev_size, "test": args.test_size}
    sizes = {split: size for split, size in sizes.items() if size > 0}
    if sum(sizes.values()) * 2 > len(pairs):
        taken = ", ".join(f"{reason}: {n:,}" for reason, n in drops.counts.items())
        raise UserError(
            f"{len(pairs):,} pairs are too few for {' and '.join(map(str, sizes.values()))} in dev "
            f"and test (dropped: {taken or 'none'})",
            at="--dev-size, --test-size",
            fix="ask for less than half of the pairs, or loosen the filters",
        )
    if args.split == "random":  # a sentence with several translations is a group
        pairs = [pair._replace(group=pair.src) for pair in pairs]
    elif len({pair.group for pair in pairs}) < 10:
        raise UserError(
            "the input has fewer than 10 groups", at="--split group", fix="use --split random"
        )
    return hold_out(pairs, sizes, drops)


def prepare_generic(read: Read, args: argparse.Namespace) -> None:
    """Read, filter, split and write a corpus of one's own."""
    request = Request(args.out, args.src, args.tgt, args.force)
    check_request(request)
    drops = Drops()
    pairs = list(apply_filters(read(args, drops), filters_from(args), drops))
    splits = _split(pairs, args, drops)
    notes = [f"Split: {args.split}; pairs of dev and test that nearly recur elsewhere are dropped."]
    finish(Corpus(args.out.name, splits, drops, (), notes), request)


def generic_command(
    read: Read,
    description: str | None,
    options: Callable[[argparse.ArgumentParser], None],
    prepare: Callable[[Read, argparse.Namespace], None] = prepare_generic,
) -> Command:
    """The command of a generic module: its own ``options``, the shared ones, then ``prepare``."""

    def main(argv: Sequence[str] | None = None) -> int:
        from nmt.cli.common import run_command  # late: importing a reader needs no command

        parser = parser_for(description)
        options(parser)
        add_options(parser)
        return run_command(lambda args: prepare(read, args), lambda: parser, argv)

    return main
