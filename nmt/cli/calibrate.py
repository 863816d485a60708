"""nmt-calibrate: learn from dev to predict the chrF of a translation."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import command_parser

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en
  %(prog)s runs/gl-en --split dev.news    # one of several dev sets
  %(prog)s runs/gl-en --json > quality.json

nmt-translate RUN --confidence then writes what chrF to expect of each line."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-calibrate."""
    p = command_parser(
        "nmt-calibrate",
        usage="%(prog)s RUN [options]",
        description="Translate dev of a run, learn from the scores of its lines what chrF to "
        "expect of a translation, and write RUN/confidence.json.",
        epilog=EXAMPLES,
    )
    p.add_argument("run", metavar="RUN", help="run folder that nmt-train wrote")
    p.add_argument(
        "--split",
        type=_dev,
        default="dev",
        metavar="SPLIT",
        help="dev, or dev.NAME of several dev sets; default: %(default)s",
    )
    p.add_argument("--json", action="store_true", help="print one JSON object")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Write the calibration, and print how well it fits."""
    from nmt.apps.evaluate.calibrate import calibrate, notes

    enable_gc()
    file, calibration, quality = calibrate(args.run, args.split)
    for note in notes(file, calibration, quality):
        print(f"note: {note}", file=sys.stderr)
    if args.json:
        content = {"calibration": asdict(calibration), "quality": asdict(quality)}
        print(json.dumps(content, indent=1), flush=True)
    else:
        print(quality.table() if sys.stdout.isatty() else quality.tsv(), flush=True)


def _dev(text: str) -> str:
    if text.partition(".")[0] == "dev":
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not dev or dev.NAME")


if __name__ == "__main__":
    sys.exit(main())
