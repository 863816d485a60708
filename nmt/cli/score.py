"""nmt-score: BLEU, chrF, TER and tokenized BLEU, with signatures, intervals and significance."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nmt.cli.common import enable_gc, run_command
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.scoring.systems import Systems


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-score."""
    from nmt.scoring.metrics import METRICS, RESAMPLES

    p = argparse.ArgumentParser(
        prog="nmt-score",
        usage="%(prog)s RUN [RUN ...] [--split test|dev] [options]\n"
        "       %(prog)s --hyp F [F ...] --ref F [options]",
        description="Score translations with sacreBLEU. Several systems are compared with the "
        "first one by paired bootstrap.",
        epilog="A table on a terminal, tab-separated lines in a pipe; notes go to stderr.",
    )
    p.add_argument("runs", nargs="*", metavar="RUN", help="run folder(s) that nmt-train wrote")
    p.add_argument(
        "--split", choices=["test", "dev"], help="which hypotheses of the runs; default: test"
    )
    p.add_argument("--hyp", nargs="+", metavar="F", help="hypotheses, plain text, one file each")
    p.add_argument("--ref", metavar="F", help="reference; default for runs: the recipe's")
    p.add_argument("--src", metavar="F", help="source, to count hypotheses that only repeat it")
    p.add_argument(
        "--tgt-lang", metavar="XX", help="language of the files, for tokenization; default: en"
    )
    p.add_argument(
        "--tokenized", action="store_true", help="the files are Moses-tokenized, not plain text"
    )
    p.add_argument(
        "--metrics",
        type=_metrics,
        default=list(METRICS),
        metavar="M,M",
        help=f"some of {','.join(METRICS)}; default: all (ter is slow)",
    )
    p.add_argument(
        "--resamples",
        type=_resamples,
        default=RESAMPLES,
        metavar="N",
        help="bootstrap resamples; 0 = no intervals; default: %(default)s",
    )
    p.add_argument("--json", action="store_true", help="print one JSON object")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Read, tell what is odd, score, print."""
    from nmt.scoring.report import report

    enable_gc()
    inputs = _inputs(args)
    for note in inputs.notes():
        print(f"note: {note}", file=sys.stderr)
    found = report(inputs, args.metrics, args.resamples)
    if args.json:
        print(found.json(), flush=True)
    else:
        print(found.table() if sys.stdout.isatty() else found.tsv(), flush=True)


def _inputs(args: argparse.Namespace) -> Systems:
    from nmt.scoring.systems import from_files, from_runs

    if bool(args.runs) == bool(args.hyp):
        raise UserError(
            "run folders and --hyp are given" if args.runs else "nothing to score",
            fix="give either run folders, or --hyp and --ref",
        )
    if args.runs:
        for option in ("src", "tgt_lang", "tokenized"):
            if getattr(args, option):
                raise UserError(
                    f"--{option.replace('_', '-')} is for --hyp; a run's recipe knows it",
                    fix="leave it out",
                )
        return from_runs(args.runs, args.split or "test", args.ref)
    if args.split:
        raise UserError("--split is for run folders", fix="leave it out, or give a run folder")
    if not args.ref:
        raise UserError("--hyp needs a reference", fix="add --ref FILE")
    return from_files(args.hyp, args.ref, args.tgt_lang or "", args.tokenized, args.src)


def _metrics(text: str) -> list[str]:
    from nmt.scoring.metrics import METRICS

    names = list(dict.fromkeys(text.split(",")))
    if wrong := [name for name in names if name not in METRICS]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(METRICS)}")
    return names


def _resamples(text: str) -> int:
    if text.isdecimal() and (int(text) == 0 or int(text) >= 100):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither 0 nor a number from 100 on")


if __name__ == "__main__":
    sys.exit(main())
