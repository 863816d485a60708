"""nmt-sheet: write a workbook for scoring translations without knowing the systems."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import count, enable_gc, run_command
from nmt.cli.parsers import command_parser
from nmt.errors import UserError

SUFFIX = ".xlsx"

EXAMPLES = """\
examples:
  %(prog)s test.gl a.en b.en -o sheet.xlsx
  %(prog)s test.gl a.en b.en c.en -o sheet.xlsx
  %(prog)s test.gl a.en b.en --documents docids -o sheet.xlsx"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-sheet."""
    p = command_parser(
        "nmt-sheet",
        description="Write a workbook in which people score the translations of two or three "
        "systems without knowing which is which. nmt-judge compares the systems by the filled "
        "workbooks.",
        epilog=EXAMPLES,
    )
    p.add_argument("src", metavar="SRC", help="the source")
    p.add_argument(
        "systems",
        nargs="+",
        metavar="SYSTEM",
        help="two or three translations of the source, line by line",
    )
    p.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the workbook; the key is written next to it",
    )
    p.add_argument("--force", action="store_true", help="replace existing files")
    p.add_argument("--ref", metavar="F", help="reference, which the judges see")
    p.add_argument(
        "--documents",
        metavar="F",
        help="file with the document id of each line: whole documents are sampled",
    )
    p.add_argument(
        "--sample",
        type=count,
        default=100,
        metavar="N",
        help="lines to sample; default: %(default)s",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Sample the lines, then write the workbook and its key."""
    from nmt.apps.judge.key import Key, draw_rows, read_documents
    from nmt.apps.judge.sheet import LETTERS, write_sheet
    from nmt.data.lines import is_blank, read_lines
    from nmt.runtime.files import AGAIN, TEMPORARY, disk_errors, replace_together, write_synced
    from nmt.runtime.words import quantity
    from nmt.scoring.metrics import check_lines
    from nmt.scoring.systems import reject_duplicates
    from nmt.store.output import check_output_file

    enable_gc()
    source, names = args.src, args.systems
    if not 2 <= len(names) <= len(LETTERS):
        fix = "give the source and the translations of two or three systems"
        raise UserError(f"{quantity(len(names), 'system')}, but a sheet has two or three", fix=fix)
    reject_duplicates(names, "this system is given twice")
    if not args.output.endswith(SUFFIX):
        fix = "name the workbook, for example -o sheet.xlsx"
        raise UserError("the sheet is an Excel workbook", at=args.output, fix=fix)
    output = Path(args.output)
    key_file = output.with_suffix(".key.json")
    inputs = [source, *names, args.ref, args.documents]
    check_output_file(output, args.force, inputs)
    sources = list(read_lines(Path(source)))
    read = {name: list(read_lines(Path(name))) for name in names}
    refs = list(read_lines(Path(args.ref))) if args.ref else []
    for name, lines in {**read, **({args.ref: refs} if args.ref else {})}.items():
        check_lines(lines, sources, name)
    documents = read_documents(args.documents, len(sources)) if args.documents else []
    rows = draw_rows(sources, list(read.values()), refs, documents, args.sample)
    if not rows:
        raise UserError("every line is empty", at=source, fix="give the source text")
    key = Key(tuple(names), source, tuple(row for row, _ in rows))
    text = key.text().encode()
    # a killed command may have left its key alone
    is_own = not output.exists() and key_file.is_file() and key_file.read_bytes() == text
    check_output_file(key_file, args.force or is_own, inputs)
    content = write_sheet(key, [texts for _, texts in rows], bool(documents), args.output)
    drafts = {path: path.with_name(TEMPORARY + path.name) for path in (key_file, output)}
    with disk_errors(output, 0, "choose another --output", AGAIN):
        for path, data in ((key_file, text), (output, content)):
            drafts[path].unlink(missing_ok=True)
            write_synced(drafts[path], data)
        replace_together(drafts)
    if blank := sum(map(is_blank, sources)):
        print(f"note: {source}: {quantity(blank, 'empty line')} left out", file=sys.stderr)
    print(f"wrote {output}, {quantity(len(rows), 'row')}, for the judges")
    print(f"wrote {key_file}: keep it, and do not give it to the judges")


if __name__ == "__main__":
    sys.exit(main())
