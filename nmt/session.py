"""One run, from a recipe to its result. ``nmt.train`` and nmt-train use this module."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nmt.config.recipe import Recipe
from nmt.config.sizes import advice_on_size
from nmt.data.bitext import held_out_entries
from nmt.data.prepare import Prepared
from nmt.data.report import summary as describe_report
from nmt.decoding.ctranslate2.folder import prepare_engine
from nmt.decoding.translator import Translator
from nmt.errors import Diverged, MachineError, NmtError, RunError, Terminated
from nmt.runtime.device import emulation_note, resolve_device, resolve_precision
from nmt.runtime.distributed import World
from nmt.runtime.files import disk_errors, require_space, write_atomic
from nmt.runtime.memory import (
    frozen_count,
    moments,
    parameter_count,
    require_memory,
)
from nmt.runtime.signals import StopRequest, raise_terminated, stop_signals
from nmt.runtime.words import quantity
from nmt.scoring.systems import set_file, words_file
from nmt.store.checkpoint import (
    Checkpoint,
    checkpoints_to_keep,
    replace_damaged_best,
    rotate,
    space_needed,
    write_run_model,
)
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from nmt.store.metrics_log import Logger, MetricsLog, require_trackers, trackers_of
from nmt.store.model import Model, save_text
from nmt.store.parent import with_keys_of_parent
from nmt.store.results import read_metrics, read_summary
from nmt.store.tensors import shapes_of
from nmt.training.ending import finish, write_diverged
from nmt.training.evaluation import Stopped
from nmt.training.observers import ObserverHook
from nmt.training.parallel import require_shardable
from nmt.training.progress import LiveLine, Validation
from nmt.training.start import prepare_again, start_of
from nmt.training.stopping import just_validated
from nmt.training.tasks import make_task
from nmt.training.trainer import Trainer


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run.

    Attributes:
        run: the run folder.
        reason: why training ended.
        notes: remarks on the model, such as that no update improved on its parent.
        hours: training hours, summed over all starts of the run.
        best: name of the best checkpoint, such as u000640.
        dev: its dev score, by the metric ``select_by``.
        test: test scores of the best checkpoint by name; empty without a test set.
        history: one dictionary per validation: ``update``, scores and perplexities; that of update
            0 is the parent's.
        text: test scores, examples and the command that translates, as nmt-train prints them; empty
            if the result was read from a run folder.
    """

    run: Path
    reason: str
    notes: list[str]
    updates: int
    hours: float
    best: str
    dev: float | None
    select_by: str
    test: dict[str, float]
    history: list[dict[str, Any]] = field(repr=False)
    text: str = field(default="", repr=False)

    @classmethod
    def read(cls, folder: str | Path, text: str = "") -> TrainingResult:
        """Read the result of a run that has ended.

        Raises:
            RunError: the run has not ended.
        """
        run = RunFolder(folder)
        summary = read_summary(run)
        if "best" not in summary:
            ended = "diverged" if summary else "has not ended"
            raise RunError(
                f"this run {ended}, so it has no result",
                at=str(folder),
                fix="continue it with nmt.train(recipe, resume=True), or train in another folder",
            )
        notes = summary.get("notes", [])
        return cls(
            run=run.path,
            reason=summary["reason"],
            notes=notes,
            updates=summary["updates"],
            hours=summary["hours"],
            best=summary["best"],
            dev=summary.get("dev"),
            select_by=run.recipe().score.select_by,
            test={score["name"]: score["value"] for score in summary.get("test") or ()},
            history=[record for record in read_metrics(run) if record.get("kind") == "dev"],
            text="\n".join([text, *(f"note: {note}" for note in notes)]) if text else "",
        )

    @functools.cached_property
    def translator(self) -> Translator:
        """Load the translator of the best checkpoint; UserError if the model does not translate."""
        return Translator.load(self.run)


def open_run(
    recipe: Recipe,
    *,
    resume: bool = False,
    fresh: bool = False,
    world: World = World(),  # noqa: B008  it cannot change
) -> TrainingFolder:
    """Check the machine and the run folder; see ``nmt.train`` for arguments, errors.

    Nothing is written.

    Args:
        world: the processes that train together; this is the main one.
    """
    require_trackers(recipe.train)
    _resolve_machine(recipe, world)
    recipe = with_keys_of_parent(recipe, resume)
    return TrainingFolder(recipe.out, recipe, resume=resume, fresh=fresh)


def _resolve_machine(recipe: Recipe, world: World) -> tuple[torch.device, str]:
    device = world.local_device(resolve_device(recipe.device))
    return device, resolve_precision(recipe.precision, device)


def _write_engine(run: RunFolder, log: Logger) -> None:
    """Write the model for CTranslate2; a failure is only a note, as torch can translate too."""
    try:
        prepare_engine(Model.open(run.path))
    except (NmtError, OSError, RuntimeError) as error:
        what = error.what if isinstance(error, NmtError) else str(error)
        log.text(f"note: {run.model_dir} has no ctranslate2: {what}")


def _advice(recipe: Recipe, prepared: Prepared, parameters: int) -> str | None:
    """Return advice on the size of a translation model without a parent, else None.

    A parent was trained with other text, and the threshold was measured on translation.
    """
    if not recipe.translates or recipe.init.parent is not None:
        return None
    train = prepared.train
    pieces = int(train.tgt_len.sum()) // train.draws + len(train)
    return advice_on_size(recipe.model, parameters, pieces)


class Training:
    """A run after all checks of recipe, data and machine; no run folder is written yet.

    Args:
        run: from ``open_run``; not finished.
        world: the processes that train together; this is the main one.
        quiet: print nothing and draw nothing.

    Raises:
        UserError: the data is wrong, or not that of the run to resume.
        MachineError: the device, the memory or the disk does not suffice.
    """

    def __init__(
        self,
        run: TrainingFolder,
        world: World = World(),  # noqa: B008  it cannot change
        quiet: bool = False,
    ) -> None:
        self.run_folder, self.world, self.quiet = run, world, quiet
        recipe = run.new_recipe
        device, precision = _resolve_machine(recipe, world)
        start = self.start = start_of(run, world.size, device, precision, progress=not quiet)
        prepared, precision = start.prepared, start.precision
        self._print(describe_report(prepared.report))
        self.parameters, frozen = parameter_count(start.model), frozen_count(start.model)
        self.trained = self.parameters - frozen
        if sharded := recipe.train.shard == "full" and world.size > 1:
            require_shardable(precision)
        shards, kind = world.size if sharded else 1, recipe.optim.kind
        require_memory(self.parameters, frozen, kind, device, shards)
        if advice := _advice(recipe, prepared, self.parameters):
            self._print(f"advice: {advice}")
        self.task = make_task(recipe, prepared, device, precision)

    def describe(self) -> str:
        """Describe parent, parameters, device and precision."""
        size = f"{self.parameters:,} parameters; {self.task.device}, {self.task.precision}"
        return "\n".join([*(self.start.notes if self.start.transfer else []), size])

    def run(
        self,
        write_report: Callable[[RunFolder, Logger], None],
        on_validation: Callable[[Validation], None] = lambda validation: None,
        how_to_resume: str = "nmt.train(recipe, resume=True)",
    ) -> TrainingResult:
        """Train, and score the test set with the best checkpoint; see ``nmt.train`` for the errors.

        Args:
            write_report: writes the report of a run that has ended, also of one that diverged.
            how_to_resume: command that is printed if a signal ends the training.
        """
        run, recipe = self.run_folder, self.task.recipe
        view = LiveLine(self.quiet)
        with (
            stop_signals() as stop,
            run,
            MetricsLog(run, trackers_of(recipe, run), not self.quiet, self.world) as log,
        ):
            trainer = self._make_trainer(log, stop, view, on_validation)
            view.begin(trainer.progress)
            try:
                reason = trainer.run()
                if reason is None:
                    raise Stopped
                log.text(f"training ended: {reason}")
                self.world.enter("test")
                test = finish(trainer, reason)
                if recipe.translates:
                    _write_engine(run, log)
                write_report(run, log)
                self.world.barrier()
            except Stopped:
                view.end()
                name = stop.requested or "a signal to another process"
                saved = f"saved update {trainer.state.update}; to continue, run"
                log.text(f"{name}: {saved}\n  {how_to_resume}")
                if name == "SIGINT":
                    raise KeyboardInterrupt from None
                raise Terminated(stop.requested or "SIGTERM") from None
            except Diverged as error:
                write_diverged(trainer, error.what)
                write_report(run, log)
                raise
            finally:
                view.end()
            return TrainingResult.read(run.path, trainer.task.results(run.path, test))

    def _make_trainer(
        self,
        log: MetricsLog,
        stop: StopRequest,
        view: LiveLine,
        on_validation: Callable[[Validation], None],
    ) -> Trainer:
        """Make the trainer, write the text files of a resume, and log what is trained."""
        task, run, world, start = self.task, self.run_folder, self.world, self.start
        for note in run.notes:
            log.text(f"note: {note}")
        if emulated := emulation_note(task.precision, task.device):
            log.text(f"note: {emulated}")
        if (run.checkpoints() if run.resuming else []) != [*start.existing]:
            raise MachineError(
                "another process has changed this run meanwhile",
                at=str(run.path),
                fix="start the command again",
            )
        checkpoint = start.checkpoint
        if checkpoint is None:
            self._begin(log)
        else:
            self._continue(checkpoint, log)
        write_atomic(run.data_report_file, task.prepared.report.to_json())
        world.broadcast((task.recipe, task.precision, checkpoint, start.transfer))
        trainer = Trainer(
            task,
            run,
            log,
            lambda: stop.requested is not None,
            checkpoint,
            observe=ObserverHook(task.recipe.analysis, log),
            world=world,
            transfer=start.transfer,
            view=view,
            on_validation=on_validation,
        )
        start.transfer = start.checkpoint = None  # the model has their tensors now
        log.rewind(trainer.state.update, just_validated(trainer.state))
        self._delete_results()
        log.text(
            f"{task.describe()}: {self.parameters:,} parameters"
            + (f" ({self.trained:,} of them train)" if self.trained < self.parameters else "")
            + f", {len(task.prepared.vocab):,} types, "
            f"{quantity(task.size, task.unit)}; {task.device}, {task.precision}"
            + (f", {world.size} processes" if world.size > 1 else "")
            + f"; run folder {run.path}"
        )
        if checkpoint is not None:
            log.text(f"resumed from update {trainer.state.update:,}")
        return trainer

    def _begin(self, log: MetricsLog) -> None:
        """Write what a new run needs besides checkpoints; check that these fit on the disk."""
        run, prepared = self.run_folder, self.task.prepared
        run.text_dir.mkdir(exist_ok=True)
        save_text(run.text_dir, prepared.vocab, prepared.segmenter)
        kept = checkpoints_to_keep(self.task.recipe.train)
        state = moments(self.trained, self.task.recipe.optim.kind)
        require_space(run.path, space_needed(self.parameters, state, kept))
        start = self.start
        if start.transfer is None:  # a start that was killed may have had a parent
            run.init_file.unlink(missing_ok=True)
            return
        if start.text is not None:
            run.parent_dir.mkdir(exist_ok=True)
            start.text.vocab.save(run.parent_dir)
        write_atomic(run.init_file, json.dumps(start.record, indent=1, ensure_ascii=False) + "\n")
        for note in start.notes:
            log.text(note)

    def _continue(self, checkpoint: Checkpoint, log: MetricsLog) -> None:
        """Log what changes in a resumed run, and replace the best checkpoint if it is damaged."""
        for note in self.start.notes:
            log.text(note)
        run, state, precision = self.run_folder, checkpoint.state, self.task.precision
        if state.precision != precision:
            log.text(
                f"note: this run was trained in {state.precision} and continues in {precision}"
            )
        best = replace_damaged_best(run, state, shapes_of(checkpoint.model), log.text, checkpoint)
        with disk_errors(run.checkpoints_dir):  # a kill may have come before old ones were removed
            rotate(run, checkpoints_to_keep(self.task.recipe.train), state)
        if best is None:
            shutil.rmtree(run.model_dir, ignore_errors=True)
            return
        # a kill may have left the model of another checkpoint, and an earlier end an average
        score = dict(state.history).get(best.state.update)
        text = self.task.prepared
        write_run_model(run, best.path.name, state, best.model, text.vocab, text.segmenter, score)

    def _delete_results(self) -> None:
        """Delete the results of an earlier end of this run."""
        run = self.run_folder
        names = held_out_entries(self.task.recipe, "test")
        outputs = [set_file(run.test_hyp, name.partition(".")[2]) for name in names]
        for path in (run.report_file, *outputs, *map(words_file, outputs)):
            with disk_errors(path):
                path.unlink(missing_ok=True)

    def _print(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr)


@raise_terminated()  # where training does not end first
def train_in_other_process(world: World) -> None:
    """Train in a process other than the main one; write nothing."""
    recipe, precision, checkpoint, transfer = world.broadcast()
    device = world.local_device(resolve_device(recipe.device))
    run = RunFolder(recipe.out)  # without its lock, as nothing is written
    prepared = prepare_again(recipe, run, checkpoint)
    with stop_signals() as stop:
        trainer = Trainer(
            make_task(recipe, prepared, device, precision),
            run,
            Logger(world),
            lambda: stop.requested is not None,
            checkpoint,
            world=world,
            transfer=transfer,
        )
        with contextlib.suppress(Diverged):  # so has the main process, which says it
            trainer.run()
    # torchrun ends all processes once one fails, and this one must not fail, at its very end, while
    # the main process scores the test set
    world.barrier()
