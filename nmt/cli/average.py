"""nmt-average: make a model from checkpoints of a run."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import command_parser

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en --checkpoints u001300 u001400 u001500 -o average
  %(prog)s runs/gl-en --checkpoints u001200 -o earlier
  nmt-translate average < test.gl"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-average."""
    p = command_parser(
        "nmt-average",
        usage="%(prog)s RUN --checkpoints NAME [NAME ...] -o MODEL [options]",
        description="Make a model from one checkpoint of a run, or from the average of several. "
        "RUN/model, the best model of the run, does not change.",
        epilog=EXAMPLES,
    )
    p.add_argument("run", metavar="RUN", help="run folder from nmt-train")
    p.add_argument(
        "--checkpoints",
        nargs="+",
        metavar="NAME",
        required=True,
        help="names of folders in RUN/checkpoints, such as u001500",
    )
    p.add_argument("-o", "--output", metavar="MODEL", required=True, help="model to write")
    p.add_argument("--force", action="store_true", help="replace a model at --output")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Average the checkpoints, and print their dev scores and a command that uses the model."""
    from nmt.store.folder import RunFolder
    from nmt.store.model import check_output

    run, output = RunFolder.open(args.run), Path(args.output)
    check_output(output, args.force)
    from nmt.runtime.files import AGAIN, disk_errors
    from nmt.store.checkpoint import MODEL, average, dev_scores, find_checkpoint
    from nmt.store.results import as_score

    enable_gc()
    paths = [find_checkpoint(run, name) for name in dict.fromkeys(args.checkpoints)]
    needed = (paths[0] / MODEL).stat().st_size
    with disk_errors(output, needed, "choose another folder", AGAIN):
        average(run, paths, output, args.force, progress=True)
    recipe, scores = run.recipe(), dev_scores(run.checkpoints())
    metric = recipe.score.select_by
    for path in paths:
        score = scores.get(path.name)
        dev = "" if score is None else f"  dev {metric} {as_score(metric, score):.2f}"
        print(f"{path.name}{dev}")
    folder = shlex.quote(args.output)
    use, command = "translate with it", f"nmt-translate {folder}"
    if not recipe.translates:
        use, command = "start a translation model from it", f"nmt-train RECIPE init.from={folder}"
    print(f"wrote {folder}; {use}:\n  {command}")


if __name__ == "__main__":
    sys.exit(main())
