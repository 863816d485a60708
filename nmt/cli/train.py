"""nmt-train: from raw text to a scored model in one command."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nmt.cli import limit_onednn_cache
from nmt.cli.common import enable_gc, run_command
from nmt.cli.recipe import add_recipe, recipe_of, recipe_words
from nmt.cli.suggest import add_suggest, check_arguments, suggest_recipe
from nmt.errors import Diverged, RunError, Terminated
from nmt.runtime.distributed import World, init_distributed
from nmt.runtime.files import require_space, write_atomic
from nmt.runtime.signals import StopRequest, stop_signals

if TYPE_CHECKING:
    from nmt.run.lifecycle import TrainingFolder
    from nmt.run.metrics_log import MetricsLog
    from nmt.training.init import Transfer
    from nmt.training.task import Task
    from nmt.training.trainer import Trainer

CACHED_PRODUCTS = 64  # oneDNN's compiled matrix products: about as many as an update has


def parser() -> argparse.ArgumentParser:
    """Return the command line of nmt-train."""
    p = argparse.ArgumentParser(
        prog="nmt-train",
        description="Prepare the data, train, validate, and score the test set with the best "
        "checkpoint.",
    )
    add_recipe(p, "model.norm=layernorm seed=2", required=False)
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
        help="check the recipe, the device, the data and the memory, and write no run folder",
    )
    add_suggest(p)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> None:
    """Train in this process alone, or in the processes that torchrun started."""
    check_arguments(args)
    limit_onednn_cache(CACHED_PRODUCTS)
    if args.suggest is not None:
        suggest_recipe(args)
        return
    with init_distributed() as world:
        if world.is_main:
            run_main_process(args, world)
        else:
            run_other_process(world)


def run_main_process(args: argparse.Namespace, world: World) -> None:
    """Check everything, then train and score; only this process prints and writes.

    Errors of the recipe, the data and the machine are raised before the run folder is written.
    """
    recipe = recipe_of(args)
    from nmt.cli.corpus import obtain_corpus
    from nmt.config.load import dump_recipe
    from nmt.data.report import summary as describe_report
    from nmt.run.lifecycle import TrainingFolder
    from nmt.run.metrics_log import MetricsLog
    from nmt.run.parent import prepare_with, with_segment_of_parent
    from nmt.run.results import read_summary
    from nmt.runtime.device import resolve_device, resolve_precision
    from nmt.runtime.memory import parameter_count, require_memory
    from nmt.suggest.sizes import advice_for
    from nmt.training.finish import finish, write_diverged
    from nmt.training.init import Parent, make_transfer
    from nmt.training.parallel import require_shardable
    from nmt.training.resume import prepare_to_resume
    from nmt.training.task import Stopped
    from nmt.training.tasks import make_task, model_without_memory

    enable_gc()
    device = world.local_device(resolve_device(recipe.device))
    precision = resolve_precision(recipe.precision, device)
    recipe = with_segment_of_parent(recipe, args.resume)
    obtain_corpus(recipe)
    run = TrainingFolder(recipe.out, dump_recipe(recipe), resume=args.resume, fresh=args.fresh)
    if run.finished:
        reason = read_summary(run).get("reason")
        print(
            f"{recipe.out}: this run has already finished ({reason})\n"
            "  -> to train longer, raise train.max_validations or train.stop_patience",
            file=sys.stderr,
        )
        return
    transfer = None
    if run.resuming:
        prepared, precision = prepare_to_resume(recipe, run, world.size, device)
        model = model_without_memory(recipe, len(prepared.vocab))
    else:
        parent = Parent.of(recipe)
        prepared = prepare_with(parent.text_for(recipe) if parent else None, recipe)
        model = model_without_memory(recipe, len(prepared.vocab))
        if parent is not None:
            transfer = make_transfer(recipe, model, prepared.vocab, parent)
    print(describe_report(prepared.report), file=sys.stderr)
    parameters = parameter_count(model)
    if sharded := recipe.train.shard == "full" and world.size > 1:
        require_shardable(precision)
    require_memory(parameters, device, world.size if sharded else 1)
    if advice := advice_for(recipe, prepared, parameters):
        print(f"advice: {advice}", file=sys.stderr)
    task = make_task(recipe, prepared, device, precision)
    if args.dry_run:
        if transfer is not None:
            print("\n".join(transfer.lines), file=sys.stderr)
        print(f"{parameters:,} parameters; {device}, {precision}", file=sys.stderr)
        return
    with stop_signals() as stop, run, MetricsLog(run) as log:
        trainer = make_trainer(task, run, log, stop, world, transfer)
        try:
            reason = trainer.run()
            if reason is None:
                raise Stopped
            log.text(f"training ended: {reason}")
            test = finish(trainer, reason)
        except Stopped:
            saved = f"saved update {trainer.state.update}; to continue, run"
            log.text(f"{stop.requested}: {saved}\n  {resume_command(args, world.size)}")
            if stop.requested == "SIGINT":
                raise KeyboardInterrupt from None
            raise Terminated(stop.requested) from None
        except Diverged as error:
            write_diverged(trainer, error.what)
            raise
        print(trainer.task.results(run.path, test))


def run_other_process(world: World) -> None:
    """Compute this process's part of each update; print and write nothing."""
    from nmt.run.folder import RunFolder
    from nmt.run.metrics_log import NullLogger
    from nmt.run.parent import TextOfParent, prepare_with
    from nmt.runtime.device import resolve_device
    from nmt.training.resume import prepare_resumed
    from nmt.training.tasks import make_task
    from nmt.training.trainer import Trainer

    enable_gc()
    try:
        recipe, precision, checkpoint, transfer = world.broadcast()
    except RunError:  # the main process had nothing to train, or has printed an error
        return
    device = world.local_device(resolve_device(recipe.device))
    run = RunFolder(recipe.out)  # without its lock, as nothing is written
    if checkpoint is None:
        prepared = prepare_with(TextOfParent.stored(recipe, run), recipe, progress=False)
    else:
        prepared = prepare_resumed(recipe, run, checkpoint.state, progress=False)
    with stop_signals() as stop:
        trainer = Trainer(
            make_task(recipe, prepared, device, precision),
            run,
            NullLogger(),
            lambda: stop.requested is not None,
            checkpoint,
            world=world,
            transfer=transfer,
        )
        trainer.run()


def make_trainer(
    task: Task[Any, Any],
    run: TrainingFolder,
    log: MetricsLog,
    stop: StopRequest,
    world: World,
    transfer: Transfer | None,
) -> Trainer:
    """Build or resume the trainer, write what translation needs, and log what is trained."""
    from nmt.analysis.observers import ObserverHook
    from nmt.data.segmenters import save_segmenter
    from nmt.run.checkpoint import (
        checkpoints_to_keep,
        load_checkpoint,
        replace_damaged_best,
        shapes_of,
        space_needed,
    )
    from nmt.runtime.device import emulation_note
    from nmt.runtime.memory import frozen_count, parameter_count
    from nmt.training.tasks import model_without_memory
    from nmt.training.trainer import Trainer

    recipe, prepared, device, precision = task.recipe, task.prepared, task.device, task.precision
    for note in run.notes:
        log.text(f"note: {note}")
    if emulated := emulation_note(precision, device):
        log.text(f"note: {emulated}")
    checkpoint = load_checkpoint(run, note=log.text) if run.resuming else None
    if checkpoint is None:
        save_segmenter(prepared.segmenter, run.path)
        prepared.vocab.save(run.path)
        if transfer is not None:
            transfer.save(run)
            for line in transfer.lines:
                log.text(line)
    else:
        before = checkpoint.state.precision
        if before not in ("", precision):
            log.text(f"note: this run began in {before} and continues in {precision}")
        shapes = shapes_of(model_without_memory(recipe, len(prepared.vocab)).state_dict())
        replace_damaged_best(run, checkpoint.state, shapes, log.text)
    write_atomic(run.data_report_file, prepared.report.to_json())
    world.broadcast((recipe, precision, checkpoint, transfer))
    trainer = Trainer(
        task,
        run,
        log,
        lambda: stop.requested is not None,
        checkpoint,
        ObserverHook(recipe.analysis, log),
        world,
        transfer,
    )
    log.rewind(trainer.state.update)
    parameters, frozen = parameter_count(trainer.model), frozen_count(trainer.model)
    require_space(run.path, space_needed(parameters, checkpoints_to_keep(recipe.train)))
    log.text(
        f"{task.describe()}: {parameters:,} parameters"
        + (f" ({parameters - frozen:,} of them train)" if frozen else "")
        + f", {len(prepared.vocab):,} types, "
        f"{task.size:,} {task.unit}; {device}, {precision}"
        + (f", {world.size} processes" if world.size > 1 else "")
        + f"; run folder {run.path}"
    )
    return trainer


def resume_command(args: argparse.Namespace, processes: int) -> str:
    """Return the command line that continues this run."""
    torchrun = ["torchrun", "--nproc-per-node", str(processes), "-m", "nmt.cli.train"]
    command = torchrun if processes > 1 else ["nmt-train"]
    return shlex.join([*command, *recipe_words(args), "--resume"])


if __name__ == "__main__":
    sys.exit(main())
