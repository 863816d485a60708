"""FLORES-200: dev (997) and devtest (1,012) sentences in 204 languages, as an extra test set.

``python -m data_prep.flores --src glg_Latn --tgt eng_Latn --src-as gl --tgt-as en --out
data/flores-gl-en`` writes dev.{gl,en} and test.{gl,en}, plain text, for nmt-translate and
nmt-score; it has no training pairs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from data_prep.common import Corpus, add_local, check_out, finish, parser_for
from data_prep.fetch import Source, opened
from data_prep.pairs import Drops, Pair, one_line
from data_prep.reading import known, member_lines, member_names

SOURCE = Source(
    what="FLORES-200",
    licence="CC BY-SA 4.0",
    filename="flores200_dataset.tar.gz",
    url="https://dl.fbaipublicfiles.com/nllb/flores200_dataset.tar.gz",
    sha256="b8b0b76783024b85797e5cc75064eb83fc5288b41e9654dabc7be6ae944011f6",
    size=25_585_843,
)
_SPLITS = {"dev": "dev", "test": "devtest"}
_NOTES = ["An evaluation set: train on none of it. All languages are line-aligned with each other."]


def read_split(archive: Path, split: str, src: str, tgt: str) -> Iterator[Pair]:
    """The pairs of a split; FLORES has no empty line."""
    name = _SPLITS[split]
    sides = (member_lines(archive, f"{name}/{lang}.{name}") for lang in (src, tgt))
    for number, (one, other) in enumerate(zip(*sides, strict=True), 1):
        yield Pair(one_line(one), one_line(other), f"{split}:{number}")


def prepare_pair(args: argparse.Namespace) -> None:
    """Write dev and test of a pair of languages."""
    check_out(args.out, args.force)
    with opened([SOURCE], args.local) as [archive]:
        names = map(PurePosixPath, member_names(archive))
        codes = {name.stem for name in names if name.suffix == ".dev"}
        for lang in (args.src, args.tgt):
            known(lang, codes, "language", str(archive))
        splits = {split: read_split(archive, split, args.src, args.tgt) for split in _SPLITS}
        langs = args.src_as or args.src, args.tgt_as or args.tgt
        corpus = Corpus(f"flores-{'-'.join(langs)}", *langs, splits, Drops(), [SOURCE], _NOTES)
        finish(corpus, args.out, args.force)


def main(argv: list[str] | None = None) -> int:
    """The command."""
    from nmt.cli.main import run_command  # late: importing the reader needs no command

    parser = parser_for(__doc__)
    add_local(parser)
    for side in ("src", "tgt"):
        parser.add_argument(f"--{side}", required=True, help="FLORES code, such as eng_Latn")
        parser.add_argument(f"--{side}-as", metavar="LANG", help="ending of the written files")
    return run_command(prepare_pair, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
