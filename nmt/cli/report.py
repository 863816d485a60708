"""nmt-report: what the variants of a file have come to, beside what the paper prints for them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from nmt.cli.common import enable_gc, run_command

if TYPE_CHECKING:
    from nmt.config.load import Variant

Cell: TypeAlias = str | int | float | None

TITLES = {
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


def parser() -> argparse.ArgumentParser:
    """The command line of nmt-report."""
    p = argparse.ArgumentParser(
        prog="nmt-report",
        description="What each variant of a file has come to: status, best score on dev and its "
        "perplexity, BLEU on test, and what the paper prints. nmt-score tells whether a difference "
        "of two runs is significant.",
        epilog="A table on a terminal, tab-separated lines in a pipe.",
    )
    p.add_argument("file", help="a file with variants of a recipe, as in recipes/ablations/")
    p.add_argument(
        "--runs",
        nargs="+",
        default=[None],
        metavar="DIR",
        help="where the run folders are, for example one DIR for each seed; default: where "
        "nmt-train puts them",
    )
    p.add_argument("--json", action="store_true", help="print one JSON object")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """One row for each variant and folder of runs, run or not."""
    from nmt.config.load import load_variants

    enable_gc()
    rows = [_row(variant, runs) for variant in load_variants(args.file) for runs in args.runs]
    if args.json:
        print(json.dumps({"file": args.file, "variants": rows}, indent=1, ensure_ascii=False))
    elif sys.stdout.isatty():
        print(table(rows))
    else:
        print("\t".join(TITLES))
        for row in rows:
            print("\t".join(_plain(row[name]) for name in TITLES))


def _row(variant: Variant, runs: str | None) -> dict[str, Cell]:
    from nmt.run.results import read_result

    result = read_result(Path(runs, variant.name) if runs else variant.recipe.out)
    printed = {f"{name}_printed": variant.paper.get(name) for name in ("dev", "ppl", "test")}
    names = {"variant": variant.name, "about": variant.about, "runs": runs}
    return {**names, **vars(result), **printed}


def table(rows: Sequence[dict[str, Cell]]) -> str:
    """For people: columns that nothing is known for are left out."""
    names = [name for name in TITLES if any(row[name] is not None for row in rows)]
    cells = [[TITLES[name] for name in names]]
    cells += [[_short(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = [name in ("variant", "runs", "status") for name in names]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in cells
    )


def _short(cell: Cell) -> str:
    if isinstance(cell, float):
        from nmt.run.results import format_number

        return format_number(cell)
    return f"{cell:,}" if isinstance(cell, int) else cell or "-"


def _plain(cell: Cell) -> str:
    return "" if cell is None else f"{cell:.4f}" if isinstance(cell, float) else str(cell)


if __name__ == "__main__":
    sys.exit(main())
