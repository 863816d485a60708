"""A corpus from line-aligned files PREFIX.SRC and PREFIX.TGT, plain, .gz, .xz or .bz2.

``python -m data_prep.from_moses corpus --src gl --tgt en --out data/gl-en`` splits corpus.gl and
corpus.en. With ``--dev`` and ``--test`` these splits are taken line by line as they are, and the
filters apply to the training pairs alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_prep.common import Corpus, Request, check_request, finish
from data_prep.generic import Read, filters_from, generic_command, prepare_generic
from data_prep.pairs import Drops, Pair, apply_filters, drop_duplicates
from data_prep.released import UNALTERED, aligned, drop_empty
from nmt.data.text import find_side
from nmt.errors import UserError


def _pairs(prefix: str, args: argparse.Namespace) -> Iterator[Pair]:
    sides = find_side(prefix, args.src), find_side(prefix, args.tgt)
    for pair in aligned(*sides, Path(prefix).name):
        yield pair._replace(group=prefix)


def read(args: argparse.Namespace, drops: Drops) -> Iterator[Pair]:
    """Training pairs of all prefixes."""
    for prefix in args.prefixes:
        yield from drop_empty(_pairs(prefix, args), drops)


def prepare(read: Read, args: argparse.Namespace) -> None:
    """Split, or take the splits that are given, and write."""
    if not (args.dev or args.test):
        prepare_generic(read, args)
        return
    if not (args.dev and args.test):
        raise UserError("--dev and --test belong together", at="command line", fix="give both")
    request = Request(args.out, args.src, args.tgt, args.force)
    check_request(request)
    drops = Drops()
    train = apply_filters(read(args, drops), filters_from(args), drops)
    splits: dict[str, Iterable[Pair]] = {
        "train": drop_duplicates(train, drops),
        "dev": _pairs(args.dev, args),
        "test": _pairs(args.test, args),
    }
    notes = [f"Splits are the source's. {UNALTERED}"]
    finish(Corpus(args.out.name, splits, drops, (), notes), request)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefixes", nargs="+", metavar="PREFIX", help="training pairs")
    parser.add_argument("--dev", metavar="PREFIX", help="given tuning set")
    parser.add_argument("--test", metavar="PREFIX", help="given final set")


main = generic_command(read, __doc__, _options, prepare)

if __name__ == "__main__":
    sys.exit(main())
