"""nmt-judge: compare systems, using the workbooks that judges filled in."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import command_parser
from nmt.errors import UserError

EXAMPLES = """\
examples:
  %(prog)s anna.xlsx --key sheet.key.json
  %(prog)s anna.xlsx ben.xlsx --key sheet.key.json
  %(prog)s anna.xlsx ben.xlsx --key sheet.key.json -o judgements.tsv"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-judge."""
    p = command_parser(
        "nmt-judge",
        description="Compare two or three systems by the workbooks of nmt-sheet that judges "
        "filled.",
        epilog=EXAMPLES,
    )
    p.add_argument("sheets", nargs="+", metavar="SHEET", help="filled sheets, one for each judge")
    p.add_argument(
        "--key",
        required=True,
        metavar="FILE",
        help="the .key.json file that nmt-sheet wrote next to the sheet",
    )
    p.add_argument("-o", "--output", metavar="FILE", help="a TSV file with each judgement")
    p.add_argument("--force", action="store_true", help="replace an existing --output")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Read the sheets, then print a table."""
    from nmt.apps.judge.analysis import analyze, judgement_table, results_tsv, table
    from nmt.apps.judge.key import read_key
    from nmt.apps.judge.sheet import read_sheets
    from nmt.runtime.files import AGAIN, write_atomic
    from nmt.runtime.words import quantity
    from nmt.scoring.metrics import RESAMPLES
    from nmt.scoring.systems import reject_duplicates
    from nmt.store.output import check_output_file

    enable_gc()
    reject_duplicates([Path(name).stem for name in args.sheets], "two sheets of one judge")
    if args.output:
        check_output_file(Path(args.output), args.force, [*args.sheets, args.key])
    key = read_key(Path(args.key))
    judgements, notes = read_sheets([Path(name) for name in args.sheets], key)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if not judgements:
        fix = "fill the yellow cells of the sheets, and save them"
        raise UserError("no row is judged", at=", ".join(args.sheets), fix=fix)
    if args.output:
        text = judgement_table(key, judgements)
        write_atomic(Path(args.output), text, "choose another --output", AGAIN)
        written = quantity(len(judgements), "judgement")
        print(f"note: wrote {written} of each system to {args.output}", file=sys.stderr)
    findings = analyze(key, judgements, RESAMPLES)
    print(table(key, findings) if sys.stdout.isatty() else results_tsv(findings), flush=True)


if __name__ == "__main__":
    sys.exit(main())
