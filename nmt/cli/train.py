"""nmt-train: from raw text to a scored model, in one go."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli import limit_onednn_cache
from nmt.cli.common import enable_gc, run_command
from nmt.cli.recipe import add_recipe, recipe_of, recipe_words
from nmt.errors import RunError, Terminated
from nmt.runtime.distributed import World, init_distributed
from nmt.runtime.files import require_space, write_atomic
from nmt.runtime.signals import StopRequest, stop_signals

if TYPE_CHECKING:
    import torch

    from nmt.config.recipe import Recipe
    from nmt.data.prepare import Prepared
    from nmt.model.transformer import Transformer
    from nmt.run.folder import RunFolder
    from nmt.run.metrics_log import MetricsLog
    from nmt.training.trainer import Trainer
    from nmt.training.validation import Evaluation

EXAMPLES = 5
PRODUCTS = 64  # compiled ones kept: as many as an update has


def parser() -> argparse.ArgumentParser:
    """The command line of nmt-train."""
    p = argparse.ArgumentParser(
        prog="nmt-train",
        description="Prepare the data, train, validate, and score the test set with the best "
        "checkpoint.",
    )
    add_recipe(p, "model.norm=layernorm seed=2")
    which = p.add_mutually_exclusive_group()
    which.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    which.add_argument("--fresh", action="store_true", help="move an old run aside and start over")
    p.add_argument(
        "--dry-run",
        action="store_true",
        help="check recipe, device and data, build the model, and leave no run folder",
    )
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run_command(body, parser, argv)


def body(args: argparse.Namespace) -> int:
    """Everything that can be wrong is found before the run folder is written."""
    limit_onednn_cache(PRODUCTS)
    with init_distributed() as world:
        return lead(args, world) if world.is_main else follow(world)


def lead(args: argparse.Namespace, world: World) -> int:
    """Prepare, train, score: everything, where there is but one process."""
    recipe = recipe_of(args)
    from nmt.cli.corpus import obtain_corpus
    from nmt.config.load import dump_recipe
    from nmt.data.checks import summary as describe_report
    from nmt.data.prepare import prepare
    from nmt.run.folder import RunFolder
    from nmt.run.metrics_log import MetricsLog
    from nmt.runtime.device import resolve_device, resolve_precision
    from nmt.runtime.memory import require_memory
    from nmt.training.finish import diverged, finish
    from nmt.training.resume import skeleton
    from nmt.training.validation import Stopped

    enable_gc()
    device = world.local_device(resolve_device(recipe.device))
    precision = resolve_precision(recipe.precision, device)
    obtain_corpus(recipe)
    run = RunFolder.for_training(
        recipe.out, dump_recipe(recipe), resume=args.resume, fresh=args.fresh
    )
    if run.finished:
        print(f"{recipe.out}: already finished ({run.summary().get('reason')})", file=sys.stderr)
        return 0
    if run.resuming:
        prepared, precision = resumed(recipe, run, world, device)
    else:
        prepared = prepare(recipe)
    print(describe_report(prepared.report), file=sys.stderr)
    size = parameters(skeleton(recipe, len(prepared.vocab)))
    require_memory(size, device)
    if args.dry_run:
        print(f"{size:,} parameters; {device}, {precision}", file=sys.stderr)
        return 0
    with stop_signals() as stop, run, MetricsLog(run) as log:
        trainer = start(recipe, prepared, run, device, precision, log, stop, world)
        try:
            reason = trainer.run()
            if reason is None:
                raise Stopped
            log.text(f"training ended: {reason}")
            _, test = finish(trainer, reason)
        except Stopped:
            saved = f"saved update {trainer.state.update}; go on with"
            log.text(f"{stop.requested}: {saved}\n  {resume_command(args, world.size)}")
            if stop.requested == "SIGINT":
                raise KeyboardInterrupt from None
            raise Terminated(stop.requested) from None
        except RunError as error:
            diverged(trainer, error.what)
            raise
        show_results(recipe, prepared, run.path, test)
    return 0


def follow(world: World) -> int:
    """Train along with the first process, which does all else and says all there is to say."""
    from nmt.data.prepare import prepare
    from nmt.run.folder import RunFolder
    from nmt.run.metrics_log import NullLogger
    from nmt.runtime.device import resolve_device
    from nmt.training.resume import prepare_resumed
    from nmt.training.trainer import Trainer

    enable_gc()
    try:
        recipe, precision, checkpoint = world.broadcast()
    except RunError:  # it had nothing to train, or has said what is wrong
        return 0
    device = world.local_device(resolve_device(recipe.device))
    run = RunFolder(recipe.out)  # not locked, nothing is written
    with stop_signals() as stop:
        trainer = Trainer(
            recipe,
            prepare_resumed(recipe, run.path, checkpoint.state, progress=False)
            if checkpoint
            else prepare(recipe, progress=False),
            run,
            device,
            precision,
            NullLogger(),
            lambda: stop.requested is not None,
            checkpoint,
            world=world,
        )
        trainer.run()
    return 0


def resumed(
    recipe: Recipe, run: RunFolder, world: World, device: torch.device
) -> tuple[Prepared, str]:
    """The corpora and the precision of a run to resume, before anything is changed.

    Raises:
        UserError: going on would not be the same training.
    """
    from nmt.run.checkpoint import load_checkpoint, require_same_update
    from nmt.training.resume import prepare_resumed, require_complete, resumed_precision

    checkpoint = load_checkpoint(run, say=lambda note: None)
    state = checkpoint.state
    changed = any(change.startswith("optim.accumulate:") for change in run.changes)
    require_same_update(state, recipe.optim.accumulate, world.size, changed)
    began = state.precision or run.recipe().precision
    precision = resumed_precision(recipe.precision, began, device)
    prepared = prepare_resumed(recipe, run.path, state)
    require_complete(recipe, checkpoint, len(prepared.vocab))
    return prepared, precision


def start(
    recipe: Recipe,
    prepared: Prepared,
    run: RunFolder,
    device: torch.device,
    precision: str,
    log: MetricsLog,
    stop: StopRequest,
    world: World,
) -> Trainer:
    """Write what the run folder needs for translating, and build or resume the trainer."""
    from nmt.analysis.observers import ObserverHook
    from nmt.run.average import checkpoints_to_keep
    from nmt.run.checkpoint import load_checkpoint, secure_best, space_needed
    from nmt.run.stored import shapes_of
    from nmt.runtime.device import emulation_note
    from nmt.training.resume import skeleton
    from nmt.training.trainer import Trainer

    for note in run.notes:
        log.text(f"note: {note}")
    if emulated := emulation_note(precision, device):
        log.text(f"note: {emulated}")
    checkpoint = load_checkpoint(run, say=log.text) if run.resuming else None
    if checkpoint is None:
        save_text(prepared, run)
    else:
        began, model = checkpoint.state.precision, skeleton(recipe, len(prepared.vocab))
        if began not in ("", precision):
            log.text(f"note: this run began in {began} and continues in {precision}")
        secure_best(run, checkpoint.state, shapes_of(model.state_dict()), log.text)
    write_atomic(run.data_report_file, json.dumps(prepared.report, indent=1, ensure_ascii=False))
    world.broadcast((recipe, precision, checkpoint))
    trainer = Trainer(
        recipe,
        prepared,
        run,
        device,
        precision,
        log,
        lambda: stop.requested is not None,
        checkpoint,
        ObserverHook(recipe.analysis, log),
        world,
    )
    log.rewind(trainer.state.update)
    size = parameters(trainer.model)
    require_space(run.path, space_needed(size, checkpoints_to_keep(recipe.train)))
    log.text(
        f"{recipe.src}-{recipe.tgt}: {size:,} parameters, {len(prepared.vocab):,} types, "
        f"{len(prepared.train):,} pairs; {device}, {precision}"
        + (f", {world.size} processes" if world.size > 1 else "")
        + f"; run folder {run.path}"
    )
    return trainer


def save_text(prepared: Prepared, run: RunFolder) -> None:
    """Write segmenter and vocabulary, each file whole or not at all."""
    from nmt.data.segment import save_segmenter

    with tempfile.TemporaryDirectory() as draft:
        save_segmenter(prepared.segmenter, Path(draft))
        prepared.vocab.save(Path(draft))
        for file in Path(draft).iterdir():
            write_atomic(run.path / file.name, file.read_bytes())


def parameters(model: Transformer) -> int:
    """How many numbers a model learns."""
    return sum(p.numel() for p in model.parameters())


def show_results(recipe: Recipe, prepared: Prepared, run: Path, test: Evaluation | None) -> None:
    """Scores with signatures, examples, and the command that translates."""
    if test is not None and prepared.test is not None:
        print("\ntest scores")
        for score in test.scores:
            interval = "" if score.low is None else f"  [{score.low:.2f}, {score.high:.2f}]"
            print(f"  {score.name:<10} {score.value:6.2f}{interval}  {score.signature}")
        print("\nexamples")
        split = prepared.test
        step = max(1, len(test.texts) // EXAMPLES)
        for row in range(0, len(test.texts), step)[:EXAMPLES]:
            print(f"  {recipe.src:<4} {split.src_lines[row]}")
            print(f"  ours {test.texts[row]}")
            print(f"  {recipe.tgt:<4} {split.ref_lines[row]}\n")
    place = shlex.quote(str(run))
    print(f"run folder: {place}")
    example = prepared.dev.src_lines[0] if prepared.dev.src_lines else ""
    print(f"translate:  echo {shlex.quote(example)} | nmt-translate {place}")


def resume_command(args: argparse.Namespace, processes: int) -> str:
    """The command line that goes on with this run."""
    several = ["torchrun", "--nproc-per-node", str(processes), "-m", "nmt.cli.train"]
    start = several if processes > 1 else ["nmt-train"]
    return shlex.join([*start, *recipe_words(args), "--resume"])


if __name__ == "__main__":
    sys.exit(main())
