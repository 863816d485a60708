"""A corpus from line-aligned files PREFIX.SRC and PREFIX.TGT, plain, .gz, .xz or .bz2.

``--dev`` and ``--test`` name existing sets, which are copied line by line. What is not named is cut
from the training pairs. The filters apply to these only.

Examples:
  nmt import moses raw/talks --src-lang gl --tgt-lang en -o data/gl-en
  nmt import moses news books --dev-size 500 --test-size 500 --src-lang gl \\
      --tgt-lang en -o data/gl-en
  nmt import moses raw/train --test raw/test --dev-size 500 --src-lang gl \\
      --tgt-lang en -o data/gl-en
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from data_prep.command import add_held_out, check_sets, existing, own_command, write_own_corpus
from data_prep.pairs import Pair, clean_training_pairs, read_aligned
from nmt.data.report import Drops
from nmt.data.text import find_side


def _pairs(prefix: str, args: argparse.Namespace) -> Iterator[Pair]:
    sides = find_side(prefix, args.src), find_side(prefix, args.tgt)
    for pair in read_aligned(*sides, Path(prefix).name):
        yield pair._replace(group=prefix)


def prepare(args: argparse.Namespace) -> None:
    """Copy the existing sets, cut the others from the pairs of all prefixes, and write."""
    drops = Drops()
    check_sets(args.prefixes, args, "PREFIX")
    held_out = {split: _pairs(prefix, args) for split, prefix in existing(args).items()}
    pairs = (pair for prefix in args.prefixes for pair in _pairs(prefix, args))
    write_own_corpus(clean_training_pairs(pairs, drops), args, drops, held_out)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prefixes", nargs="*", metavar="PREFIX", help="training pairs PREFIX.SRC and PREFIX.TGT"
    )
    add_held_out(parser, "PREFIX")


main = own_command(prepare, __doc__, _add_options)

if __name__ == "__main__":
    sys.exit(main())
