"""nmt-plot: the papers' figures from run folders."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import enable_gc, run_command
from nmt.errors import UserError

FORMS = ("png", "svg", "pdf")


def parser() -> argparse.ArgumentParser:
    """The command line of nmt-plot."""
    from nmt.analysis.figures import FIGURES

    figures = "\n".join(f"  {name:<10} {(f.__doc__ or '').strip()}" for name, f in FIGURES.items())
    p = argparse.ArgumentParser(
        prog="nmt-plot",
        description="Draw a figure of the papers from one or several runs, finished or under way.\n"
        f"\n{figures}\n\nMost need what analysis.every and analysis.observe log while training.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("figure", choices=list(FIGURES), help="what to draw")
    p.add_argument("runs", nargs="+", metavar="RUN", help="run folders, in the legend's order")
    p.add_argument("-o", "--output", metavar="FILE", required=True, help="a .png, .svg or .pdf")
    p.add_argument(
        "--of",
        metavar="NAME",
        help="curves: bleu, chrf, ppl, ...; depth: a matrix such as self_attn.qkv; "
        "changes: grad_l2; gains: res_scale or head_scale",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Read the runs, draw, and only then write; an older picture is replaced."""
    from nmt.analysis.curves import RunMetrics
    from nmt.analysis.figures import draw
    from nmt.runtime.files import disk_errors

    enable_gc()
    output = Path(args.output)
    form = output.suffix.lower().lstrip(".")
    if form not in FORMS:
        raise UserError(
            f'cannot draw a "{output.suffix}" file', at=args.output, fix="name a .png, .svg or .pdf"
        )
    data = draw(args.figure, [RunMetrics(run) for run in args.runs], args.of, form)
    with disk_errors(output, 0, "choose another --output", "run the same command again"):
        output.write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
