"""nmt-sweep: train all variants of a file with several seeds, and tabulate the results."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.common import count, enable_gc, positive, run_command
from nmt.cli.parsers import command_parser, shorten_help
from nmt.errors import NmtError, RunError, Terminated, UserError
from nmt.runtime.words import quantity

if TYPE_CHECKING:
    from nmt.apps.sweep.plan import PlannedRun
    from nmt.apps.sweep.pool import Pool
    from nmt.apps.sweep.results import SweepResult
    from nmt.config.variants import Sweep

FORMATS = ("text", "markdown", "latex", "csv", "json")
ELSEWHERE = "choose another folder with --output DIR"

EXAMPLES = """\
examples:
  %(prog)s recipes/sweeps/norms-in-an-afternoon.yaml
  %(prog)s norms.yaml --seeds 1 2 3 --devices 0 1
  %(prog)s norms.yaml --results --format markdown   # so far"""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-sweep."""
    p = command_parser(
        "nmt-sweep",
        usage="%(prog)s FILE [key=value ...] [options]",
        description="Train each variant of a file with each seed, and print mean, standard "
        "deviation and best score, with the significance of each difference. The same command "
        "continues an interrupted sweep; runs that have ended are not repeated.",
        epilog=EXAMPLES,
    )
    p.add_argument(
        "file", metavar="FILE", help="a file of variants, such as those in recipes/sweeps/"
    )
    p.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="key=value",
        help="recipe keys to override in each run, for example train.max_validations=2",
    )
    p.add_argument(
        "--seeds",
        action="extend",
        nargs="+",
        type=int,
        metavar="N",
        help="seeds of each variant; default: seeds of the file",
    )
    p.add_argument(
        "--hours",
        type=positive,
        metavar="H",
        help="hours of training of each run; default: budget.hours of the file",
    )
    p.add_argument(
        "--tokens",
        type=positive,
        metavar="N",
        help="tokens of each run, counted as full batches; default: budget.tokens of the file",
    )
    p.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="folder of the sweep; default: runs/NAME for NAME.yaml",
    )
    where = p.add_argument_group("where to train")
    where.add_argument(
        "--jobs",
        type=count,
        metavar="N",
        help="number of runs at the same time, which share the CPU threads; default: one for each "
        "device",
    )
    where.add_argument(
        "--devices",
        action="extend",
        nargs="+",
        metavar="N",
        default=[],
        help="numbers of the GPUs to use; each run uses one of them",
    )
    results = p.add_argument_group("results")
    results.add_argument(
        "--metric",
        metavar="NAME",
        help="metric of the table, such as chrf or ppl; default: score.select_by of the recipe",
    )
    results.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="format of the printed table; default: %(default)s",
    )
    only = p.add_mutually_exclusive_group()
    only.add_argument(
        "--dry-run", action="store_true", help="list the runs and their commands, without training"
    )
    only.add_argument(
        "--results", action="store_true", help="print the results so far, without training"
    )
    shorten_help(
        p, "file", "overrides", "seeds", "hours", "output", "dry_run", "results", "jobs", "devices",
        "metric",
    )  # fmt: skip
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Check everything, train what has not ended, and print the results."""
    from nmt.apps.sweep.plan import check_overrides

    enable_gc()
    sweep = _sweep(args)
    check_overrides(sweep.budget, args.overrides)
    out = Path(args.output) if args.output else Path("runs") / Path(args.file).stem
    place = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not place.is_dir():
        raise UserError(
            "is a file, so the folder of the sweep cannot be here", at=str(place), fix=ELSEWHERE
        )
    if bad := _grid(args, sweep, out):
        raise RunError(
            f"{quantity(len(bad), 'run')} ended without a result: {', '.join(bad)}",
            fix=f"read the reasons above and in {out / 'logs'}; the same command trains failed "
            "runs again, and a diverged one after its folder is deleted",
        )


def _grid(args: argparse.Namespace, sweep: Sweep, out: Path) -> list[str]:
    """Train each variant with each seed; return the names of the runs that failed or diverged."""
    from data_prep.download import obtain_corpus
    from nmt.apps.sweep.plan import grid
    from nmt.apps.sweep.results import collect
    from nmt.store.results import read_result

    runs = grid(args.file, sweep, out, args.overrides)
    if args.dry_run:
        _list(runs)
        return []
    known = {run.name: run.outcome() for run in runs}
    waiting = [run for run in runs if known[run.name] is None]
    outcomes = {name: outcome for name, outcome in known.items() if outcome}
    if waiting and not args.results:
        with _training(args, out, len(runs)) as pool:
            for run in runs:
                if outcome := known[run.name]:
                    hours = read_result(run.folder).hours
                    seconds = hours * 3600 if hours and outcome.status == "finished" else None
                    pool.display.skipped(outcome.status, seconds)
            for run in waiting if pool.slots > 1 else ():  # not by several processes at a time
                with contextlib.suppress(NmtError):  # nmt-train reports it, for this run only
                    obtain_corpus(run.recipe)
            outcomes |= pool.run(waiting)
    result = collect(args.file, runs, outcomes, sweep.baseline, args.metric)
    _write(args, result, out)
    finished = [
        [run.folder for run in system.runs if run.finished]
        for system in next(iter(result.groups.values()))
    ]
    folders = [seeds[0] for seeds in finished if seeds]
    if len(folders) > 1:
        report = out / "report.html"
        force = ["--force"] if report.exists() else []
        command = shlex.join(["nmt-report", *folders, "-o", str(report), *force])
        print(f"curves and translations side by side: {command}", file=sys.stderr)
    return [name for name, outcome in outcomes.items() if outcome.status in ("failed", "diverged")]


def _sweep(args: argparse.Namespace) -> Sweep:
    """Read the sweep of the file, with the changes of the command line."""
    from dataclasses import replace

    from nmt.config.variants import Budget, load_sweep

    sweep = load_sweep(args.file, args.overrides)
    seeds = args.seeds or sweep.seeds
    if twice := [seed for i, seed in enumerate(seeds) if seed in seeds[:i]]:
        raise UserError(f"{twice[0]} is listed twice", at="--seeds", fix="list each seed once")
    if args.metric:
        _check_metric(args.metric, sweep)
    given = {key: getattr(args, key) for key in ("hours", "tokens") if getattr(args, key)}
    old = {} if sweep.budget is None else sweep.budget.model_dump()
    budget = Budget(**{**old, **given}) if given else sweep.budget
    return replace(sweep, seeds=seeds, budget=budget)


def _check_metric(metric: str, sweep: Sweep) -> None:
    for variant in sweep.variants:
        score, has_test = variant.recipe.score, bool(variant.recipe.data.test)
        known = ["ppl"]
        if variant.recipe.task == "causal_lm":
            known += ["word_ppl"] if has_test else []
        if variant.recipe.translates:
            known += [*score.metrics, "tokenized_bleu"] if has_test else []
            known += [score.select_by] if score.select_by not in known else []
        if metric not in known:
            raise UserError(
                f"the runs of {variant.name} do not measure {metric}; they measure "
                f"{', '.join(known)}",
                at="--metric",
                fix="choose one of these, or name more in score.metrics",
            )


def _list(runs: Sequence[PlannedRun]) -> None:
    changed = {}
    for run in runs:
        outcome = run.outcome()
        state: str = outcome.status if outcome else "to train"
        if outcome is None and (changes := run.refused()):
            state, changed[run.folder] = "changed", changes
        print(f"{state:<9} {shlex.join(['nmt-train', *run.arguments, '--resume'])}")
    for folder, changes in changed.items():
        print(f"note: {folder}: trained with another recipe: {'; '.join(changes)}", file=sys.stderr)
    if changed:
        print(
            "note: nmt-train refuses to continue a changed run: undo the change, delete its "
            "folder, or choose another folder with --output DIR",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _training(args: argparse.Namespace, out: Path, total: int) -> Iterator[Pool]:
    """Yield a pool for ``total`` runs that trains in the locked folder of the sweep."""
    from nmt.apps.sweep.pool import Display, Pool
    from nmt.runtime.cpus import num_threads
    from nmt.runtime.files import AGAIN, disk_errors
    from nmt.runtime.signals import stop_signals
    from nmt.store.lock import FolderLock

    slots = args.jobs or max(1, len(args.devices))
    threads = max(1, num_threads() // slots)
    with disk_errors(out, elsewhere=ELSEWHERE, again=AGAIN):
        out.mkdir(parents=True, exist_ok=True)
    with FolderLock(out), stop_signals() as stop:
        display = Display(sys.stderr, total, slots)
        each = f"{quantity(threads, 'CPU thread')} each"
        display.say(f"{quantity(total, 'run')}, {slots} at a time with {each}, in {out}")
        yield Pool(slots, args.devices, threads, out / "logs", display, stop)
        if stop.requested is None:
            return
        display.say("to continue, run the same command again; results so far: --results")
        if stop.requested == "SIGINT":
            raise KeyboardInterrupt
        raise Terminated(stop.requested)


def _write(args: argparse.Namespace, result: SweepResult, out: Path) -> None:
    """Print the results, and write them in all formats to the folder of the sweep."""
    from nmt.apps.sweep.tables import FORMATS as RENDERERS
    from nmt.runtime.files import AGAIN, write_atomic

    print(RENDERERS[args.format][1](result), end="")
    if not out.is_dir():
        return
    for ending, render in RENDERERS.values():
        write_atomic(out / f"results.{ending}", render(result), ELSEWHERE, AGAIN)
    endings = ", ".join(f".{ending}" for ending, _ in RENDERERS.values())
    print(f"results: {out}/results{endings}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
