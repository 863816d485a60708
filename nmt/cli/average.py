"""nmt-average: average several checkpoints of a run into a new one."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import command_parser
from nmt.errors import UserError

EXAMPLES = """\
examples:
  %(prog)s runs/gl-en --last 5
  %(prog)s runs/gl-en --best 5
  nmt-translate runs/gl-en --checkpoint u001500-avg5 < test.gl"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-average."""
    p = command_parser(
        "nmt-average",
        description="Average the weights of several checkpoints of a run. The result is a new "
        "checkpoint in the run folder, for example u001500-avg5. Translate with it using "
        "nmt-translate --checkpoint. The best checkpoint of the run does not change.",
        epilog=EXAMPLES,
    )
    p.add_argument("run", metavar="RUN", help="run folder from nmt-train")
    which = p.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=int, metavar="N", help="average the newest N checkpoints")
    which.add_argument(
        "--best", type=int, metavar="N", help="average the N checkpoints with the best dev scores"
    )
    p.add_argument("--force", action="store_true", help="replace an existing average of this name")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Choose the checkpoints, average them, and print them with the name of the average."""
    from nmt.run.folder import RunFolder

    run = RunFolder.open(args.run)
    option, count = ("--last", args.last) if args.best is None else ("--best", args.best)
    if count < 2:
        what = f"averaging needs at least 2 checkpoints, not {count}"
        raise UserError(what, fix=f"use {option} 2")
    from nmt.run.checkpoint import best_checkpoints, dev_scores, latest, save_average
    from nmt.run.results import as_score

    enable_gc()
    with run.lock:
        choose, suffix = (latest, "avg") if args.best is None else (best_checkpoints, "best")
        paths = choose(run, count)
        if len(paths) < count:
            kind = "checkpoints" if args.best is None else "checkpoints with a dev score"
            smaller = f"use {option} {len(paths)}, or " if len(paths) > 1 else ""
            raise UserError(
                f"{option} {count} needs {count} {kind}, but the run has {len(paths)}",
                at=str(run.path),
                fix=f"{smaller}train a new run with train.keep={count}",
            )
        path = run.checkpoints_dir / f"{paths[-1].name}-{suffix}{count}"
        if path.exists() and not args.force:
            raise UserError(
                "the average exists already",
                at=str(path),
                fix=f"use it with --checkpoint {path.name}, or add --force to replace it",
            )
        name = save_average(run, paths, suffix, progress=True).name
    recipe, scores = run.recipe(), dev_scores(run.checkpoints())
    metric = recipe.score.select_by
    for path in paths:
        score = scores.get(path.name)
        dev = "" if score is None else f"  dev {metric} {as_score(metric, score):.2f}"
        print(f"{path.name}{dev}")
    folder = shlex.quote(args.run)
    use, command = "translate with it", f"nmt-translate {folder} --checkpoint {name}"
    if not recipe.translates:
        use = "start a translation model from it"
        command = f"nmt-train RECIPE init.from={folder} init.checkpoint={name}"
    print(f"average saved as checkpoint {name}; {use}:\n  {command}")


if __name__ == "__main__":
    sys.exit(main())
