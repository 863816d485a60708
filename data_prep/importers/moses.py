"""A corpus from line-aligned files PREFIX.SRC and PREFIX.TGT.

Files may be compressed (.gz, .xz, .bz2). ``--dev`` and ``--test`` name existing sets, which are
copied line by line. Missing sets are cut from the training pairs. The filters apply to these
only.

Examples:
  nmt-import moses raw/talks --src-lang gl --tgt-lang en -o data/gl-en
  nmt-import moses news books --dev-size 500 --test-size 500 --src-lang gl \\
      --tgt-lang en -o data/gl-en
  nmt-import moses raw/train --test raw/test --dev-size 500 --src-lang gl \\
      --tgt-lang en -o data/gl-en
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from data_prep.own_corpus import (
    SPLIT_OPTIONS,
    existing_sets,
    require_text,
    text_options,
    write_own_corpus,
)
from data_prep.pairs import clean_training_pairs, read_aligned
from data_prep.write import Request
from nmt.data.lines import find_side
from nmt.data.pair import Pair
from nmt.data.report import Drops


def _pairs(prefix: str, request: Request) -> Iterator[Pair]:
    sides = find_side(prefix, request.src), find_side(prefix, request.tgt)
    for pair in read_aligned(*sides, Path(prefix).name):
        yield pair._replace(group=prefix)


OPTIONS = (
    *text_options("prefixes", "PREFIX", "training pairs PREFIX.SRC and PREFIX.TGT"),
    *SPLIT_OPTIONS,
)


def prepare(request: Request) -> None:
    """Copy the existing sets, cut the others from the pairs of all prefixes, and write."""
    drops, prefixes = Drops(), request.options.prefixes
    require_text(prefixes, request, "PREFIX")
    held_out = {s: _pairs(prefix, request) for s, prefix in existing_sets(request).items()}
    pairs = (pair for prefix in prefixes for pair in _pairs(prefix, request))
    write_own_corpus(clean_training_pairs(pairs, drops), request, drops, held_out)
