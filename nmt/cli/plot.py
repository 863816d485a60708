"""nmt-plot: draw the papers' figures from run folders."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import add_output, command_parser, table
from nmt.errors import UserError

FORMATS = ("png", "svg", "pdf")

EXAMPLES = """\
examples:
  %(prog)s curves runs/layernorm runs/scalenorm -o curves.png
  %(prog)s curves runs/gl-en --select ppl -o ppl.svg
  %(prog)s depth runs/gl-en --select self_attn.qkv -o depth.pdf"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-plot."""
    from nmt.apps.plot.figures import FIGURES

    figures = table({name: (f.__doc__ or "").strip() for name, f in FIGURES.items()})
    p = command_parser(
        "nmt-plot",
        usage="%(prog)s FIGURE RUN [RUN ...] -o FILE [options]",
        description="Draw learning curves, or a figure of the papers, from one or several runs, "
        f"finished or in progress.\n\n{figures}\n\nT: Transformers without Tears (Nguyen and "
        "Salazar 2019). N: NormFormer (Shleifer et al. 2021).\nThe figures depth, changes and "
        "gains need what the recipe keys analysis.every and\nanalysis.observe log during training "
        "(docs/analysis.md).",
        epilog=EXAMPLES,
    )
    p.add_argument("figure", choices=list(FIGURES), metavar="FIGURE", help="the figure to draw")
    p.add_argument("runs", nargs="+", metavar="RUN", help="run folders, in the order of the legend")
    add_output(p, "FILE", "a .png, .svg or .pdf file", "an existing figure", required=True)
    p.add_argument(
        "--select",
        metavar="NAME",
        help="the quantity to draw: for curves, bleu, chrf, ppl, ... (default: score.select_by); "
        "for depth, a matrix such as self_attn.qkv (default: ffn.fc2); for changes, grad_l1 "
        "(default) or grad_l2; for gains, gains (default), res_scale or head_scale",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Draw the figure in memory, then write it."""
    from nmt.apps.plot.curves import RunMetrics
    from nmt.apps.plot.figures import draw
    from nmt.runtime.files import AGAIN, write_atomic
    from nmt.store.output import check_output_file

    enable_gc()
    output = Path(args.output)
    file_format = output.suffix.lower().lstrip(".")
    if file_format not in FORMATS:
        raise UserError(
            f'cannot write a "{output.suffix}" file',
            at=args.output,
            fix="name a .png, .svg or .pdf file",
        )
    check_output_file(output, args.force)
    runs = [RunMetrics(run) for run in args.runs]
    data = draw(args.figure, runs, args.select, file_format)
    write_atomic(output, data, "choose another --output", AGAIN)
    print(f"wrote {output}")


if __name__ == "__main__":
    sys.exit(main())
