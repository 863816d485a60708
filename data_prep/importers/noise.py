"""Noisy copies of a test set: typos, missing accents, capitals.

They measure how well a model translates noisy input.

DIR gets one set for each kind of noise, such as typos.SRC and typos.TGT, with all lines of
PREFIX.SRC and PREFIX.TGT. Lines to which a kind does not apply are unchanged. The kinds are those
of ``data.augment`` in a recipe. Case, punctuation, copies and join also change the reference. The
same command writes the same files again.

Example:
  nmt-import noise corpus/test --src-lang gl --tgt-lang en -o corpus/noisy
"""

from __future__ import annotations

import sys
from pathlib import Path

from data_prep.formats import Option
from data_prep.pairs import read_aligned
from data_prep.write import Corpus, Request, write_corpus
from nmt.data.lines import find_side
from nmt.data.pair import Pair
from nmt.data.report import Drops
from nmt.runtime.words import quantity

SEED = 1
OPTIONS = (
    Option("prefix", metavar="PREFIX", help="test set PREFIX.SRC and PREFIX.TGT"),
    Option("--tokenized", action="store_true", help="the files are Moses-tokenized, with escapes"),
)


def prepare(request: Request) -> None:
    """Read the set, and write a copy of it for each kind."""
    from nmt.data.augment import KINDS, Augmenter, Draws  # here: it loads numpy

    options = request.options
    name, langs = Path(options.prefix).name, (request.src, request.tgt)
    sides = find_side(options.prefix, request.src), find_side(options.prefix, request.tgt)
    pairs = list(read_aligned(*sides, name))
    lines = [(pair.src, pair.tgt) for pair in pairs]
    augmenter = Augmenter(dict.fromkeys(KINDS, 1.0), options.tokenized)
    splits: dict[str, list[Pair]] = {}
    notes = []
    for kind in KINDS:
        changed = [
            augmenter.change(lines, i, [kind], Draws(SEED + i), langs) for i in range(len(lines))
        ]
        splits[kind] = [
            pair._replace(src=src, tgt=tgt) for pair, (src, tgt) in zip(pairs, changed, strict=True)
        ]
        count = sum(new != old for new, old in zip(changed, lines, strict=True))
        notes.append(f"{kind}: {quantity(count, 'pair')} of {len(lines):,} changed.")
    write_corpus(Corpus(f"{name} with noise", splits, Drops(), (), notes), request)
    print("\n".join(f"  {note}" for note in notes), file=sys.stderr)
