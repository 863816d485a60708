"""nmt-translate --pairs: options of the parallel corpus that a command writes."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.apps.synthesize.pairs import SyntheticCorpus


def add_pairs(p: argparse.ArgumentParser) -> None:
    """Add the options to the parser of nmt-translate."""
    pairs = p.add_argument_group("parallel corpus, for back-translation and distillation")
    pairs.add_argument(
        "--pairs",
        metavar="PREFIX",
        help="write the lines of --input to PREFIX.SRC and their translations to PREFIX.TGT, "
        "without bad pairs; SRC and TGT are the languages of the run",
    )
    pairs.add_argument(
        "--max-ratio",
        type=float,
        metavar="X",
        help="drop a pair if one side is longer than X times its expected length plus 10 "
        "characters; default: 2",
    )
    pairs.add_argument(
        "--max-copied",
        type=float,
        metavar="X",
        help="drop a pair if more than this share of the target words are copied from the source; "
        "1 = keep copies; default: 0.5",
    )


def corpus_of(args: argparse.Namespace) -> SyntheticCorpus | None:
    """Return the corpus of ``--pairs``, None without it.

    Raises:
        UserError: an option is not allowed, the input is not a regular file, RUN is no run and
            no model, the prefix has a suffix, or both sides would have the same language.
    """
    _check_options(args)
    if args.pairs is None:
        return None
    from nmt.apps.synthesize.filters import Thresholds
    from nmt.apps.synthesize.pairs import SyntheticCorpus

    src, tgt = _languages(args)
    if Path(args.pairs).name in ("", "..") or args.pairs.endswith(os.sep):
        what = "--pairs takes a prefix of file names, not a folder"
        fix = f"write, for example, --pairs {Path(args.pairs) / 'bt'}"
        raise UserError(what, at=args.pairs, fix=fix)
    if args.pairs.endswith((f".{src}", f".{tgt}")):
        what = f"--pairs takes a prefix, to which .{src} and .{tgt} are added"
        fix = f"leave out the suffix: --pairs {args.pairs.rpartition('.')[0]}"
        raise UserError(what, at=args.pairs, fix=fix)
    given = {"max_ratio": args.max_ratio, "max_copied": args.max_copied}
    thresholds = Thresholds(**{name: x for name, x in given.items() if x is not None})
    return SyntheticCorpus(Path(args.pairs), Path(args.input), (src, tgt), thresholds, args.force)


def _check_options(args: argparse.Namespace) -> None:
    if args.pairs is None:
        for flag, value in (("--max-ratio", args.max_ratio), ("--max-copied", args.max_copied)):
            if value is not None:
                raise UserError(f"{flag} requires --pairs", fix=f"add --pairs, or leave {flag} out")
        return
    if args.input is None or (Path(args.input).exists() and not Path(args.input).is_file()):
        raise UserError(
            "--pairs requires a regular --input file, which is read several times",
            fix="add --input FILE; it may be plain text, .gz, .xz or .bz2",
        )
    from nmt.apps.synthesize.filters import Thresholds

    if args.max_ratio is not None and not 1 < args.max_ratio < math.inf:
        fix = f"give a number over 1, or leave the option out for {Thresholds.max_ratio:g}"
        raise UserError(f"--max-ratio: {args.max_ratio:g} is not a number over 1", fix=fix)
    if args.max_copied is not None and not 0 <= args.max_copied <= 1:
        fix = f"give a number from 0 to 1, or leave the option out for {Thresholds.max_copied:g}"
        raise UserError(f"--max-copied: {args.max_copied:g} is not a number from 0 to 1", fix=fix)


def _languages(args: argparse.Namespace) -> tuple[str, str]:
    from nmt.decoding.options import SearchOptions
    from nmt.store.model import Model

    trained = Model.open(args.run[0]).about.trained
    src = args.src or trained.src
    given = SearchOptions(tag=args.tag, tgt_tag=args.tgt_tag)
    tag = given.with_default_tags(trained.default_tags).target_tag
    tgt = trained.tag_targets.get(tag, trained.tgt)
    if src == tgt:
        raise UserError(
            f"the text and its translations are both {src}",
            at="--src-lang, --tag, --tgt-tag",
            fix="give the language of the text with --src-lang, and the tag of another target "
            "language with --tag or --tgt-tag",
        )
    return src, tgt
