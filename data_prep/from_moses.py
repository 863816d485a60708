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
from collections.abc import Iterator
from pathlib import Path

from data_prep.command import (
    Read,
    add_held_out,
    check_held_out,
    own_corpus_command,
    prepare_own_corpus,
)
from data_prep.pairs import Drops, Pair, clean_training_pairs, read_aligned
from nmt.data.text import find_side


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
    held_out = None
    if check_held_out(args):
        held_out = {"dev": _pairs(args.dev, args), "test": _pairs(args.test, args)}
    prepare_own_corpus(read, args, held_out)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prefixes", nargs="+", metavar="PREFIX", help="training pairs PREFIX.SRC and PREFIX.TGT"
    )
    add_held_out(parser, "PREFIX")


main = own_corpus_command(read, __doc__, _add_options, prepare)

if __name__ == "__main__":
    sys.exit(main())
