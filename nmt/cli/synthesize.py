"""nmt-synthesize: translate text into a parallel corpus, for back-translation and distillation."""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.common import run_command
from nmt.cli.parsers import add_output, command_parser, shorten_help
from nmt.cli.search_options import (
    add_runs,
    add_search_options,
    constraints_of,
    note,
    open_translator,
    search_options_of,
)
from nmt.errors import UserError
from nmt.runtime.signals import raise_terminated
from nmt.version import __version__

if TYPE_CHECKING:
    from nmt.apps.synthesize.pairs import SyntheticCorpus
    from nmt.decoding.options import SearchOptions

NOT_ONE_TEXT = ("n_best", "token_scores", "align")  # a side has one translation of each line
# shown by --help; --help-all shows the others too
OFTEN_USED = (
    "run", "input", "output", "force", "resume", "max_ratio", "max_copied", "beam", "sample",
    "tag",
)  # fmt: skip
EXAMPLES = """\
examples:
  %(prog)s runs/en-gl --input mono.en -o bt            # bt.en and bt.gl
  %(prog)s runs/en-gl --input mono.en -o bt --sample
  %(prog)s runs/en-gl --input mono.en -o bt --resume

docs/search-options.md explains the search options."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-synthesize."""
    p = command_parser(
        "nmt-synthesize",
        usage="%(prog)s RUN [RUN ...] --input FILE -o PREFIX [options]",
        description="Translate text with one sentence per line. Write the lines to PREFIX.SRC and "
        "their translations to PREFIX.TGT, without bad pairs, and counts to PREFIX.json. SRC and "
        "TGT are the languages of the run.",
        epilog=EXAMPLES,
    )
    add_runs(p)
    corpus = p.add_argument_group("corpus")
    corpus.add_argument(
        "--input",
        metavar="FILE",
        required=True,
        help="text to translate: plain, .gz, .xz or .bz2",
    )
    add_output(
        corpus,
        "PREFIX",
        "write the corpus with this prefix; until it is complete, PREFIX.part has the translations",
        "an existing corpus",
        required=True,
        resume="continue an interrupted corpus",
    )
    corpus.add_argument(
        "--max-ratio",
        type=float,
        metavar="X",
        help="drop a pair if one side is longer than X times its expected length plus 10 "
        "characters; default: 2",
    )
    corpus.add_argument(
        "--max-copied",
        type=float,
        metavar="X",
        help="drop a pair if more than this share of the target words are copied from the source; "
        "1 = keep copies; default: 0.5",
    )
    add_search_options(p, NOT_ONE_TEXT)
    shorten_help(p, *OFTEN_USED)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the arguments and files, then translate and filter."""
    from nmt.store.output import locked_output

    chosen = search_options_of(args)
    corpus = corpus_of(args)
    inputs = [args.input, args.prefix, args.require, args.glossary]
    named = [name for name in inputs if name is not None]
    locked = locked_output(corpus.name, named, args.resume, args.force, corpus.files)
    # a signal ends the command as an error does, so finished lines are written first
    with raise_terminated(), locked:
        _translate(args, corpus, chosen)


def corpus_of(args: argparse.Namespace) -> SyntheticCorpus:
    """Return the corpus to write.

    Raises:
        UserError: an option is not allowed, the input is not a regular file, RUN is no run and
            no model, the prefix has a suffix, or both sides would have the same language.
    """
    from nmt.apps.synthesize.filters import Thresholds
    from nmt.apps.synthesize.pairs import SyntheticCorpus

    if args.max_ratio is not None and not 1 < args.max_ratio < math.inf:
        fix = f"give a number over 1, or leave the option out for {Thresholds.max_ratio:g}"
        raise UserError(f"--max-ratio: {args.max_ratio:g} is not a number over 1", fix=fix)
    if args.max_copied is not None and not 0 <= args.max_copied <= 1:
        fix = f"give a number from 0 to 1, or leave the option out for {Thresholds.max_copied:g}"
        raise UserError(f"--max-copied: {args.max_copied:g} is not a number from 0 to 1", fix=fix)
    values = {"max_ratio": args.max_ratio, "max_copied": args.max_copied}
    thresholds = Thresholds(**{name: x for name, x in values.items() if x is not None})
    if Path(args.input).exists() and not Path(args.input).is_file():
        what = "--input must be a regular file, which is read several times"
        raise UserError(what, at=args.input, fix="write its text to a file, and name that file")
    src, tgt = _languages(args)
    if Path(args.output).name in ("", "..") or args.output.endswith(os.sep):
        what = "--output takes a prefix of file names, not a folder"
        fix = f"write, for example, --output {Path(args.output) / 'bt'}"
        raise UserError(what, at=args.output, fix=fix)
    if args.output.endswith((f".{src}", f".{tgt}")):
        what = f"--output takes a prefix, to which .{src} and .{tgt} are added"
        fix = f"leave out the suffix: --output {args.output.rpartition('.')[0]}"
        raise UserError(what, at=args.output, fix=fix)
    return SyntheticCorpus(Path(args.output), Path(args.input), (src, tgt), thresholds, args.force)


def _languages(args: argparse.Namespace) -> tuple[str, str]:
    from nmt.decoding.options import SearchOptions
    from nmt.store.model import Model

    trained = Model.open(args.run[0]).about.trained
    src = args.src or trained.src
    options = SearchOptions(tag=args.tag, tgt_tag=args.tgt_tag)
    tag = options.with_default_tags(trained.default_tags).target_tag
    tgt = trained.tag_targets.get(tag, trained.tgt)
    if src == tgt:
        raise UserError(
            f"the text and its translations are both {src}",
            at="--src-lang, --tag, --tgt-tag",
            fix="give the language of the text with --src-lang, and the tag of another target "
            "language with --tag or --tgt-tag",
        )
    return src, tgt


def _translate(args: argparse.Namespace, corpus: SyntheticCorpus, chosen: SearchOptions) -> None:
    from nmt.cli.line_checks import TermCounts, line_bar, note_unknown
    from nmt.runtime.files import file_digest
    from nmt.store.output import open_output

    lines, total = corpus.read_input()
    constraints = constraints_of(args, total)
    translator, options = open_translator(args, chosen)
    if args.resume and corpus.is_complete():
        note(f"{corpus.name}: the corpus is complete already")
        return
    settings = {
        "version": __version__,
        "run": args.run,
        "model": translator.engine.model_hash(),
        "input": file_digest(Path(args.input)),
        "reverse": args.reverse,
        **options.model_dump(),
    }
    complete = functools.partial(corpus.write, settings=settings)
    format_line = corpus.line_format(translator)
    terms = TermCounts(translator, options) if options.glossary else None
    lines = lines if terms is None else terms.see(lines)
    opening = open_output(corpus.name, args.resume, args.force, None, total, complete)
    with opening as (write, finished):
        corpus.check_unfinished(finished)
        with line_bar(total, finished) as bar:
            given: dict[str, Any] = {"checked": options, **constraints}
            given |= {"progress": bar.update, "skip": finished}
            for (best,) in translator.stream(lines, **given):
                write(f"{format_line(best)}\n".encode())
    note_unknown(translator.unknown)
    if terms is not None:
        terms.note(args.glossary)


if __name__ == "__main__":
    sys.exit(main())
