"""nmt-convert: make a model from a public model in the format of transformers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import command_parser

EXAMPLES = """\
examples:
  %(prog)s opus-mt-en-fr -o models/opus-mt-en-fr
  %(prog)s nllb-600M -o models/en-sw --src-lang en --tgt-lang sw
  %(prog)s opus-mt-ROMANCE-en -o models/gl-en --src-lang gl"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-convert."""
    p = command_parser(
        "nmt-convert",
        usage="%(prog)s FOLDER -o MODEL [options]",
        description="Make a model from a public model: MarianMT (OPUS-MT), M2M-100, NLLB-200 or "
        "mBART-50. It computes the same function. All commands that translate accept it, and so "
        "does init.from of a recipe.",
        epilog=EXAMPLES,
    )
    p.add_argument("folder", metavar="FOLDER", help="folder of the model, as downloaded")
    p.add_argument("-o", "--output", metavar="MODEL", required=True, help="model to write")
    p.add_argument(
        "--src-lang",
        metavar="LANG",
        help="language to translate from, such as sw, swh or swh_Latn; default: that of the "
        "tokenizer, if it has one",
    )
    p.add_argument(
        "--tgt-lang",
        metavar="LANG",
        help="language to translate to; default: that of the tokenizer, if it has one",
    )
    p.add_argument(
        "--source",
        metavar="NAME",
        help="name of the model, such as facebook/nllb-200-distilled-600M; default: that of "
        "config.json, or of the folder",
    )
    p.add_argument(
        "--license",
        metavar="ID",
        help="license of the weights, such as cc-by-nc-4.0; default: that of README.md",
    )
    p.add_argument("--force", action="store_true", help="replace a model at --output")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Read and check everything, then write the model."""
    from nmt.apps.transformers.convert import convert

    enable_gc()
    output = Path(args.output)
    origin, tags, notes = convert(
        Path(args.folder),
        output,
        src=args.src_lang,
        tgt=args.tgt_lang,
        source=args.source,
        license_id=args.license,
        force=args.force,
    )
    print(f"wrote {output}: {origin.describe()}{tags}", file=sys.stderr)
    if origin.license is None:
        notes.append(
            "README.md of the model states no license; look it up before you share what you make "
            "from it, and store it with --license ID"
        )
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
