"""nmt-train: from raw text to a scored model in one command."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from nmt.cli.common import enable_gc, run_command
from nmt.cli.parsers import add_recipe, command_parser, recipe_of, recipe_words
from nmt.errors import UserError
from nmt.runtime.distributed import World, init_distributed
from nmt.runtime.signals import end_with_parent, raise_terminated

EXAMPLES = """\
examples:
  %(prog)s gl-en.yaml                             # trains: runs/gl-en
  %(prog)s gl-en.yaml seed=2 out=runs/seed-2      # with other values
  %(prog)s gl-en.yaml --resume                    # continues runs/gl-en

nmt-suggest writes a recipe for a corpus."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-train."""
    p = command_parser(
        "nmt-train",
        usage="%(prog)s RECIPE [key=value ...] [options]",
        description="Prepare the data, train, validate, and score the test set with the best "
        "checkpoint.",
        epilog=EXAMPLES,
    )
    add_recipe(p, "model.norm=layernorm seed=2")
    start = p.add_mutually_exclusive_group()
    start.add_argument(
        "--resume", action="store_true", help="continue from the newest checkpoint of the run"
    )
    start.add_argument(
        "--fresh",
        action="store_true",
        help="rename an existing run folder to NAME.old-1 and start a new run",
    )
    p.add_argument(
        "--dry-run",
        action="store_true",
        help="check the recipe, the device, the data and the memory, without training",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    end_with_parent()
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Train in this process alone, or in those that torchrun started."""
    with init_distributed() as world:
        if world.is_main:
            run_main_process(args, world)
        else:
            from nmt.session import train_in_other_process

            enable_gc()
            train_in_other_process(world)


@raise_terminated()  # where training does not save its state first
def run_main_process(args: argparse.Namespace, world: World) -> None:
    """Check everything, then train and score; only this process prints and writes.

    Errors of the recipe, the data and the machine are raised before the run folder is written.
    """
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) > 0 and not args.resume:
        raise UserError(
            "torchrun starts this command again after a failure, and the run folder exists then",
            at="--max-restarts",
            fix="add --resume at the end of the command; without a run, it starts one",
        )
    recipe = recipe_of(args)
    from data_prep.download import obtain_corpus
    from nmt.apps.report.final import write_final_report, write_missing_report
    from nmt.session import Training, open_run

    enable_gc()
    obtain_corpus(recipe)
    run = open_run(recipe, resume=args.resume, fresh=args.fresh, world=world)
    if reason := run.finished:
        if not args.dry_run:
            write_missing_report(run)
        if reason.startswith(("train.max_validations", "no better")):
            longer = "raise train.max_validations or train.stop_patience"
        else:  # by the learning rate, which a resumed run may not change
            longer = "change the schedule, and train in another folder with out=PATH"
        print(
            f"{recipe.out}: this run has already finished ({reason})\n"
            f"  -> to train longer, {longer}",
            file=sys.stderr,
        )
        return
    training = Training(run, world)
    if args.dry_run:
        flags = [f"--{name}" for name in ("resume", "fresh") if getattr(args, name)]
        print(training.describe(), file=sys.stderr)
        print(f"ready to train; next: {train_command(args, world.size, *flags)}", file=sys.stderr)
    else:
        resume = train_command(args, world.size, "--resume")
        print(training.run(write_final_report, how_to_resume=resume).text)


def train_command(args: argparse.Namespace, processes: int, *flags: str) -> str:
    """Return the command line that trains the same recipe, with other flags."""
    torchrun = ["torchrun", "--nproc-per-node", str(processes), "-m", "nmt.cli.train"]
    command = torchrun if processes > 1 else ["nmt-train"]
    return shlex.join([*command, *recipe_words(args), *flags])


if __name__ == "__main__":
    sys.exit(main())
