"""nmt-report: the report of runs as HTML."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import add_output, command_parser

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en -o gl-en.html             # the report of one run
  %(prog)s runs/gl-en --force                   # replaces its report.html
  %(prog)s runs/layernorm runs/scalenorm -o norms.html"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-report."""
    p = command_parser(
        "nmt-report",
        description="Write the report of one or several runs, finished or in progress, as one HTML "
        "file: scores, learning curves, translations, recipe, data and environment. Several runs "
        "are compared with the first.",
        epilog=EXAMPLES,
    )
    p.add_argument("runs", nargs="+", metavar="RUN", help="run folders that nmt-train wrote")
    add_output(
        p,
        "FILE",
        "the HTML file; default: report.html in the run folder, or in the working directory for "
        "several runs",
        "an existing report",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Write a report."""
    from nmt.apps.report.runs import read_runs
    from nmt.store.output import check_output_file

    runs = read_runs(args.runs)  # reports a bad folder before slow imports
    name = runs[0].folder.report_file
    output = Path(args.output or (name if len(runs) == 1 else name.name))
    check_output_file(output, args.force)
    from nmt.apps.report.page import write_report

    enable_gc()
    size = write_report(runs, output, progress=True)
    print(f"wrote {output} ({size / 1e6:.1f} MB)")


if __name__ == "__main__":
    sys.exit(main())
