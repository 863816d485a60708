"""nmt-report: the report of runs as HTML, or a table of variants."""

from __future__ import annotations

import argparse
import glob
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import add_output, command_parser
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.apps.sweep.variants import Variant
    from nmt.scoring.results import Cell

HEADERS = {
    "variant": "variant",
    "runs": "runs",
    "status": "status",
    "updates": "updates",
    "hours": "hours",
    "dev": "dev",
    "dev_printed": "printed dev",
    "ppl": "dev ppl",
    "ppl_printed": "printed ppl",
    "bleu": "test BLEU",
    "tokenized_bleu": "test tokenized BLEU",
    "test_printed": "printed test",
}

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en --force                   # replaces its report.html
  %(prog)s runs/layernorm runs/scalenorm -o norms.html
  %(prog)s --table recipes/ablations/t-table5.yaml"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-report."""
    p = command_parser(
        "nmt-report",
        usage="%(prog)s RUN [RUN ...] [-o FILE]\n"
        "       %(prog)s --table FILE [--runs DIR ...] [--json]",
        description="Write the report of one or several runs, finished or in progress, as one HTML "
        "file: scores, learning curves, translations, recipe, data and environment. Several runs "
        "are compared with the first. With --table, list the result of each variant of a file next "
        "to the paper's figures.",
        epilog=EXAMPLES,
    )
    p.add_argument(
        "paths",
        nargs="+",
        metavar="RUN",
        help="run folders that nmt-train wrote; with --table, a file with variants of a recipe, "
        "such as those in recipes/ablations/",
    )
    add_output(
        p,
        "FILE",
        "the HTML file; default: report.html in the run folder, or in the working directory for "
        "several runs",
        "an existing report",
    )
    p.add_argument(
        "--table", action="store_true", help="list the results of the variants of a file"
    )
    p.add_argument(
        "--runs",
        action="extend",
        nargs="+",
        metavar="DIR",
        help="with --table: folders that contain the run folders, for example one for each seed; "
        "default: the folders that nmt-train writes to",
    )
    p.add_argument("--json", action="store_true", help="with --table: print one JSON object")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Write a report, or print the table of a file of variants."""
    if args.table:
        _print_table(args)
        return
    for flag in ("runs", "json"):
        if getattr(args, flag):
            raise UserError(f"--{flag} requires --table", fix=f"add --table, or remove --{flag}")
    from nmt.apps.report.runs import read_runs
    from nmt.cli.output import check_output_file

    runs = read_runs(args.paths)  # reports a bad folder before slow imports
    name = runs[0].folder.report_file
    output = Path(args.output or (name if len(runs) == 1 else name.name))
    check_output_file(output, args.force)
    from nmt.apps.report.page import write_report

    enable_gc()
    size = write_report(runs, output, progress=True)
    print(f"wrote {output} ({size / 1e6:.1f} MB)")


def _print_table(args: argparse.Namespace) -> None:
    """Print one row for each variant and folder of runs, including variants without a run."""
    from nmt.apps.sweep.results import predictions_by_group
    from nmt.apps.sweep.variants import load_variants
    from nmt.run.predictions import not_comparable
    from nmt.scoring.results import tsv

    if len(args.paths) > 1:
        raise UserError("--table takes one file of variants", fix="name one file")
    if args.output:
        raise UserError("--output is for a report", fix="redirect the table: > FILE")
    enable_gc()
    (file,) = args.paths
    places = [
        (variant, runs, Path(runs, variant.name) if runs else Path(variant.recipe.out))
        for variant in load_variants(file)
        for runs in args.runs or [None]
    ]
    rows = [_row(*place) for place in places]
    if args.json:
        print(json.dumps({"file": file, "variants": rows}, indent=1, ensure_ascii=False))
    elif sys.stdout.isatty():
        print(table(rows))
    else:
        print(tsv([HEADERS, *([row[name] for name in HEADERS] for row in rows)]))
    known = zip(places, rows, strict=True)
    differ = predictions_by_group(
        (v.group, run) for (v, _, run), row in known if row["ppl"] is not None
    )
    if differ:
        print(f"note: {not_comparable('variants', differ)}", file=sys.stderr)
    if any(next(r.parent.glob(f"{glob.escape(r.name)}.seed-*"), None) for _, _, r in places):
        command = f"nmt-sweep {shlex.quote(file)} --results"
        print(f"note: for the runs of nmt-sweep, run {command}", file=sys.stderr)


def _row(variant: Variant, runs: str | None, run: Path) -> dict[str, Cell]:
    from nmt.run.results import read_result

    printed = {f"{name}_printed": variant.paper.get(name) for name in ("dev", "ppl", "test")}
    names = {"variant": variant.name, "about": variant.about, "runs": runs}
    return {**names, **vars(read_result(run)), **printed}


def table(rows: Sequence[dict[str, Cell]]) -> str:
    """Return a table for people, without the columns that are empty in all rows."""
    from nmt.scoring.results import aligned, shown

    names = [name for name in HEADERS if any(row[name] is not None for row in rows)]
    cells = [[shown(row[name]) for name in names] for row in rows]
    text_columns = sum(name in ("variant", "runs", "status") for name in names)  # the first ones
    return "\n".join(aligned([[HEADERS[name] for name in names], *cells], text_columns))


if __name__ == "__main__":
    sys.exit(main())
