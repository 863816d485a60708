"""A corpus from line-aligned files PREFIX.SRC and PREFIX.TGT, plain, .gz or .xz.

``python -m data_prep.from_moses corpus --src gl --tgt en --out data/gl-en`` splits corpus.gl and
corpus.en. With ``--dev`` and ``--test`` these splits are taken as they are, less pairs with an
empty side, and the filters apply to the training pairs alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_prep.common import Corpus, check_out, finish, parser_for
from data_prep.generic import add_options, filters_from, prepare_generic
from data_prep.pairs import Drops, Pair, apply_filters, drop_duplicates, one_line
from data_prep.released import aligned, drop_empty
from nmt.errors import UserError


def find(prefix: str, lang: str) -> Path:
    """PREFIX.LANG, or the same with .gz or .xz.

    Raises:
        UserError: none of them exists.
    """
    candidates = [Path(f"{prefix}.{lang}{suffix}") for suffix in ("", ".gz", ".xz")]
    for path in candidates:
        if path.is_file():
            return path
    raise UserError(
        f"no file {' or '.join(map(str, candidates))}", at=prefix, fix="check prefix and language"
    )


def _pairs(prefix: str, args: argparse.Namespace) -> Iterator[Pair]:
    sides = find(prefix, args.src), find(prefix, args.tgt)
    for pair in aligned(*sides, Path(prefix).name, one_line):
        yield pair._replace(group=prefix)


def read(args: argparse.Namespace, drops: Drops) -> Iterator[Pair]:
    """Training pairs of all prefixes."""
    for prefix in args.prefixes:
        yield from _pairs(prefix, args)


def prepare(args: argparse.Namespace) -> None:
    """Split, or take the splits that are given, and write."""
    if not (args.dev or args.test):
        prepare_generic(args.out.name, read, args)
        return
    if not (args.dev and args.test):
        raise UserError("--dev and --test belong together", at="command line", fix="give both")
    check_out(args.out, args.force)
    drops = Drops()
    train = apply_filters(read(args, drops), filters_from(args), drops)
    splits: dict[str, Iterable[Pair]] = {
        "train": drop_duplicates(train, drops),
        "dev": drop_empty(_pairs(args.dev, args), drops),
        "test": drop_empty(_pairs(args.test, args), drops),
    }
    notes = ["Splits are the source's; dev and test are unfiltered but for empty sides."]
    corpus = Corpus(args.out.name, args.src, args.tgt, splits, drops, (), notes)
    finish(corpus, args.out, args.force)


def main(argv: list[str] | None = None) -> int:
    """The command."""
    from nmt.cli.main import run_command  # late: importing the reader needs no command

    parser = parser_for(__doc__)
    parser.add_argument("prefixes", nargs="+", metavar="PREFIX", help="training pairs")
    parser.add_argument("--dev", metavar="PREFIX", help="given tuning set")
    parser.add_argument("--test", metavar="PREFIX", help="given final set")
    add_options(parser)
    return run_command(prepare, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
