"""A corpus from line-aligned files PREFIX.SRC and PREFIX.TGT, plain, .gz, .xz or .bz2.

``--dev`` and ``--test`` name existing splits, which are copied line by line; the filters then apply
to the training pairs only.

Examples:
  nmt import moses raw/talks --src-lang gl --tgt-lang en -o data/gl-en
  nmt import moses news books --dev-size 500 --test-size 500 --src-lang gl \\
      --tgt-lang en -o data/gl-en
  nmt import moses raw/train --dev raw/dev --test raw/test --src-lang gl \\
      --tgt-lang en -o data/gl-en
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_prep.command import Read, filters_from, own_corpus_command, prepare_own_corpus
from data_prep.pairs import (
    Drops,
    Pair,
    apply_filters,
    clean_training_pairs,
    drop_duplicates,
    read_aligned,
)
from data_prep.released import UNALTERED
from data_prep.write import Corpus, Request, check_request, write_corpus
from nmt.data.text import find_side
from nmt.errors import UserError


def _pairs(prefix: str, args: argparse.Namespace) -> Iterator[Pair]:
    sides = find_side(prefix, args.src), find_side(prefix, args.tgt)
    for pair in read_aligned(*sides, Path(prefix).name):
        yield pair._replace(group=prefix)


def read(args: argparse.Namespace, drops: Drops) -> Iterator[Pair]:
    """Yield the training pairs of all prefixes."""
    for prefix in args.prefixes:
        yield from clean_training_pairs(_pairs(prefix, args), drops)


def prepare(read: Read, args: argparse.Namespace) -> None:
    """Split the pairs, or copy the given splits, and write."""
    if not (args.dev or args.test):
        prepare_own_corpus(read, args)
        return
    if not (args.dev and args.test):
        raise UserError(
            "--dev and --test require each other", at="--dev, --test", fix="give both or neither"
        )
    request = Request(args.output, args.src, args.tgt, args.force)
    check_request(request)
    drops = Drops()
    train = apply_filters(read(args, drops), filters_from(args), drops)
    splits: dict[str, Iterable[Pair]] = {
        "train": drop_duplicates(train, drops),
        "dev": _pairs(args.dev, args),
        "test": _pairs(args.test, args),
    }
    notes = [f"Splits are the source's. {UNALTERED}"]
    write_corpus(Corpus(args.output.name, splits, drops, (), notes), request)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prefixes", nargs="+", metavar="PREFIX", help="training pairs PREFIX.SRC and PREFIX.TGT"
    )
    parser.add_argument("--dev", metavar="PREFIX", help="existing dev set")
    parser.add_argument("--test", metavar="PREFIX", help="existing test set")


main = own_corpus_command(read, __doc__, _add_options, prepare)

if __name__ == "__main__":
    sys.exit(main())
