"""nmt-judge: make blind sheets for judges, and analyze what they wrote."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import count, enable_gc, run_command
from nmt.cli.parsers import command_parser
from nmt.errors import UserError

SHEET, READ = "sheet", "read"
SUFFIX = ".xlsx"
SAMPLE = 100  # lines
# options of one action only
OWN = {
    SHEET: ("sample", "ref", "documents"),
    READ: ("key",),
}

EXAMPLES = """\
examples:
  %(prog)s sheet test.gl a.en b.en -o sheet.xlsx
  %(prog)s sheet test.gl a.en b.en c.en -o sheet.xlsx
  %(prog)s read anna.xlsx ben.xlsx --key sheet.key.json"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-judge."""
    p = command_parser(
        "nmt-judge",
        usage="%(prog)s sheet SRC SYSTEM SYSTEM [SYSTEM] -o SHEET.xlsx [options]\n"
        "       %(prog)s read SHEET.xlsx [...] --key SHEET.key.json [options]",
        description="sheet: write a workbook in which people score the translations of two or "
        "three systems without knowing which is which. read: compare the systems by the filled "
        "workbooks.",
        epilog=EXAMPLES,
    )
    p.add_argument("action", choices=(SHEET, READ), metavar="ACTION", help="sheet or read")
    p.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="sheet: the source and two or three translations of it, line by line; read: filled "
        "sheets, one for each judge",
    )
    p.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="sheet: the workbook; the key is written next to it; read: a TSV file with each "
        "judgement",
    )
    p.add_argument("--force", action="store_true", help="replace existing files")
    sheet = p.add_argument_group("sheet")
    sheet.add_argument("--ref", metavar="F", help="reference, which the judges see")
    sheet.add_argument(
        "--documents",
        metavar="F",
        help="file with the document id of each line: whole documents are sampled",
    )
    sheet.add_argument(
        "--sample", type=count, metavar="N", help=f"lines to sample; default: {SAMPLE}"
    )
    read = p.add_argument_group("read")
    read.add_argument("--key", metavar="FILE", help="the key of the sheets")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check the options, then make a sheet or read sheets."""
    enable_gc()
    for action, names in OWN.items():
        for name in names:
            if action != args.action and getattr(args, name) is not None:
                fix = f"leave out --{name}"
                raise UserError(f"--{name} is only for nmt-judge {action}", fix=fix)
    (_make if args.action == SHEET else _read)(args)


def _make(args: argparse.Namespace) -> None:
    from nmt.apps.judge.key import Key, draw_rows, read_documents
    from nmt.apps.judge.sheet import LETTERS, write_sheet
    from nmt.data.lines import is_blank, read_lines
    from nmt.runtime.files import AGAIN, TEMPORARY, disk_errors, replace_together, write_synced
    from nmt.runtime.words import quantity
    from nmt.scoring.metrics import check_lines
    from nmt.scoring.systems import reject_duplicates
    from nmt.store.output import check_output_file

    source, *names = args.files
    if not 2 <= len(names) <= len(LETTERS):
        fix = "give the source and the translations of two or three systems"
        raise UserError(f"{quantity(len(names), 'system')}, but a sheet has two or three", fix=fix)
    reject_duplicates(names, "this system is given twice")
    if not args.output or not args.output.endswith(SUFFIX):
        fix = "name the workbook, for example -o sheet.xlsx"
        raise UserError("the sheet is an Excel workbook", at=args.output or "--output", fix=fix)
    output = Path(args.output)
    key_file = output.with_suffix(".key.json")
    inputs = [*args.files, args.ref, args.documents]
    check_output_file(output, args.force, inputs)
    sources = list(read_lines(Path(source)))
    read = {name: list(read_lines(Path(name))) for name in names}
    refs = list(read_lines(Path(args.ref))) if args.ref else []
    for name, lines in {**read, **({args.ref: refs} if args.ref else {})}.items():
        check_lines(lines, sources, name)
    documents = read_documents(args.documents, len(sources)) if args.documents else []
    rows = draw_rows(sources, list(read.values()), refs, documents, args.sample or SAMPLE)
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


def _read(args: argparse.Namespace) -> None:
    from nmt.apps.judge.analysis import analyze, judgement_table, results_tsv, table
    from nmt.apps.judge.key import read_key
    from nmt.apps.judge.sheet import read_sheets
    from nmt.runtime.files import AGAIN, write_atomic
    from nmt.runtime.words import quantity
    from nmt.scoring.metrics import RESAMPLES
    from nmt.scoring.systems import reject_duplicates
    from nmt.store.output import check_output_file

    if args.key is None:
        fix = "add --key SHEET.key.json, which nmt-judge sheet wrote"
        raise UserError("nmt-judge read requires --key", fix=fix)
    reject_duplicates([Path(name).stem for name in args.files], "two sheets of one judge")
    if args.output:
        check_output_file(Path(args.output), args.force, [*args.files, args.key])
    key = read_key(Path(args.key))
    judgements, notes = read_sheets([Path(name) for name in args.files], key)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if not judgements:
        fix = "fill the yellow cells of the sheets, and save them"
        raise UserError("no row is judged", at=", ".join(args.files), fix=fix)
    if args.output:
        text = judgement_table(key, judgements)
        write_atomic(Path(args.output), text, "choose another --output", AGAIN)
        written = quantity(len(judgements), "judgement")
        print(f"note: wrote {written} of each system to {args.output}", file=sys.stderr)
    findings = analyze(key, judgements, RESAMPLES)
    print(table(key, findings) if sys.stdout.isatty() else results_tsv(findings), flush=True)


if __name__ == "__main__":
    sys.exit(main())
