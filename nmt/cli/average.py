"""nmt-average: the mean of several checkpoints of a run, as one more checkpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import enable_gc, run_command
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.run.folder import RunFolder


def parser() -> argparse.ArgumentParser:
    """The command line of nmt-average."""
    p = argparse.ArgumentParser(
        prog="nmt-average",
        description="Average the weights of several checkpoints of a run. The result is one more "
        "checkpoint of it, such as u001500-avg5, that nmt-translate takes with --checkpoint; what "
        "the run thinks best stays best.",
        epilog="train.average does the same at the end of a training, and takes the average when "
        "dev does not get worse.",
    )
    p.add_argument("run", help="run folder that nmt-train wrote")
    which = p.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=int, metavar="N", help="the newest N checkpoints")
    which.add_argument(
        "--best", type=int, metavar="N", help="the N checkpoints of the highest score on dev"
    )
    p.add_argument("--force", action="store_true", help="replace an average of this name")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Choose, average, and say what came of it."""
    from nmt.run.folder import RunFolder

    run = RunFolder.open(args.run)
    by_dev = args.best is not None
    count = args.best if by_dev else args.last
    if count < 2:
        option = "--best" if by_dev else "--last"
        raise UserError(
            f"an average is of at least 2 checkpoints, not of {count}",
            at=option,
            fix=f"give {option} 2 or more",
        )
    from nmt.run.average import best_checkpoints, latest, save_average

    enable_gc()
    with run.locked():
        paths = best_checkpoints(run, count) if by_dev else latest(run, count)
        if len(paths) < count:
            raise _too_few(run, len(paths), count, by_dev)
        suffix = "best" if by_dev else "avg"
        path = run.checkpoints_dir / f"{paths[-1].name}-{suffix}{count}"
        if path.exists() and not args.force:
            raise UserError("exists already", at=str(path), fix="use it, or give --force")
        saved = save_average(run, paths, suffix)
    for line in _table(paths, run):
        print(line)
    print(f"their average: nmt-translate {args.run} --checkpoint {saved.name}")


def _too_few(run: RunFolder, there: int, count: int, by_dev: bool) -> UserError:

    from nmt.run.average import checkpoints_to_keep

    return UserError(
        f"{there} checkpoints{' with a dev score' if by_dev else ''} are kept, not {count} "
        f"(training keeps {checkpoints_to_keep(run.recipe().train)}, and the best stays beside them)",
        at=str(run.path),
        fix=f"ask for fewer, or let a training keep more: train.keep={count}",
    )


def _table(paths: Sequence[Path], run: RunFolder) -> list[str]:
    from nmt.run.average import dev_scores

    scores, name = dev_scores(run.checkpoints()), run.recipe().score.select_by
    return [
        f"{path.name}  dev {name} {scores[path.name]:.2f}" if path.name in scores else path.name
        for path in paths
    ]


if __name__ == "__main__":
    sys.exit(main())
