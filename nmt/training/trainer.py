"""The training loop: one run, one update, one validation, and what is written.

Everything that changes the result is a function of (recipe, seed, data, update number, dev
history), so a resumed run equals an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches import FlatBatch, UpdateBatches, updates
from nmt.data.bitext import Split
from nmt.data.report import usual_line
from nmt.data.workers import Prefetcher
from nmt.errors import Diverged, MachineError, UserError
from nmt.model.base import ModelBase
from nmt.runtime.distributed import World
from nmt.runtime.memory import cached_products, limit_onednn_cache
from nmt.runtime.words import quantity
from nmt.store.checkpoint import (
    Checkpoint,
    TrainState,
    checkpoint_name,
    checkpoints_to_keep,
    read_checkpoint,
    save_checkpoint,
    write_run_model,
)
from nmt.store.folder import RunFolder
from nmt.store.metrics_log import Logger
from nmt.store.results import as_score, rank
from nmt.store.same_run import record_run
from nmt.training.cuda_graphs import Capture, CudaCapture, CudaGraphs
from nmt.training.evaluation import Evaluation, Stopped
from nmt.training.freeze import choose_trained
from nmt.training.loss import LossSums, add_sums, objective
from nmt.training.optimizer import (
    MIN_LOSS_SCALE,
    LossScaler,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    take_step,
)
from nmt.training.parallel import Replicated, Sharded
from nmt.training.progress import (
    DIVERGED,
    LiveLine,
    LogInterval,
    Progress,
    Validation,
    dev_line,
    equal_scores_warning,
    update_line,
)
from nmt.training.stopping import learning_rate, reason_to_end, validation_due
from nmt.training.task import Task
from nmt.training.transfer import Transfer


class Trainer:
    """Train one model into one run folder.

    Args:
        task: what is trained, with recipe, corpora, device and precision.
        run: the locked run folder.
        log: receives lines for people and records for machines.
        stop_requested: called between updates; True = save and return.
        checkpoint: where to continue; None = start with the first update.
        observe: called in each update with its number and the model, before gradients are clipped.
        world: the processes that train together; only rank 0 validates and writes.
        transfer: what a new run takes from its parent; None = it has none.
        view: shows the training while it runs; None = nothing does.
        on_validation: called after each validation, when its checkpoint is saved.
    """

    def __init__(
        self,
        task: Task[Any, Any],
        run: RunFolder,
        log: Logger,
        stop_requested: Callable[[], bool],
        checkpoint: Checkpoint | None = None,
        observe: Callable[[int, ModelBase], None] = lambda update, model: None,
        world: World = World(),  # noqa: B008  it cannot change
        transfer: Transfer | None = None,
        view: LiveLine | None = None,
        on_validation: Callable[[Validation], None] = lambda validation: None,
    ) -> None:
        self.task, self.run_folder, self.log, self.world = task, run, log, world
        self.recipe, self.device, self.precision = task.recipe, task.device, task.precision
        self.stop_requested, self.observe = stop_requested, observe
        self.view, self.on_validation = view or LiveLine(quiet=True), on_validation
        recipe, device, precision = self.recipe, self.device, self.precision
        limit_onednn_cache(cached_products(precision))
        model = task.make_model()
        if transfer is not None:
            transfer.load_into(model)
        choose_trained(model, recipe)
        if recipe.train.recompute:
            model.recompute_activations()
        shard = recipe.train.shard == "full" and world.size > 1
        self.parallel = (Sharded if shard else Replicated)(model, device, world)
        self.model = self.parallel.model
        self.optimizer = make_optimizer(recipe.optim, self.model, precision)
        self.check_every = 1 if device.type == "cpu" else recipe.train.log_every
        graphs = recipe.graphs == "auto" and not recipe.train.recompute
        self._has_cuda_graphs = graphs and device.type == "cuda" and not shard
        self.largest_batch = sys.maxsize  # tokens to predict that fit in memory, as far as is known
        self._start_from(checkpoint)

    def _start_from(self, checkpoint: Checkpoint | None) -> None:
        """Set the state of the run and all that follows from it; None = before the first update."""
        state = self.state = TrainState() if checkpoint is None else checkpoint.state
        if checkpoint is not None:
            own, part_of = self.model.state_dict(), self.parallel.part_of
            self.model.load_state_dict({n: part_of(t, own[n]) for n, t in checkpoint.model.items()})
            self.optimizer.state.clear()
            load_optimizer_tensors(self.optimizer, self.model, checkpoint.optimizer, part_of)
        prepared = self.task.prepared
        record_run(state, self.recipe, prepared, self.precision, self.world.size)
        state.usual_line = usual_line(prepared.report.to_json())
        self.loss_scaler = LossScaler(
            self.device, self.precision == "fp16", state.loss_scale, state.loss_scale_updates
        )
        self._saved = (state.update, len(state.history)) if checkpoint else None
        # counted on the device, because reading a number from a GPU waits for it
        self.bad_updates = torch.tensor(state.bad_updates, device=self.device)
        self.skipped_updates = torch.tensor(state.skipped_updates, device=self.device)
        self.cuda_graphs: CudaGraphs | None = None
        if self._has_cuda_graphs:
            self.use_cuda_graphs(CudaCapture())
        self.interval = LogInterval(state)
        self.progress = Progress(self.recipe, state, self.task.has_test)
        self.started = time.monotonic() - state.seconds

    def use_cuda_graphs(self, capture: Capture) -> None:
        """Pad batches to a few sizes, and replay a graph for each size that occurs often."""
        self.cuda_graphs = CudaGraphs(self.forward_backward, self.model, capture, self.log.text)

    @property
    def pads_batches(self) -> bool:
        """Return whether batches are padded to a few sizes.

        CUDA graphs need it. On a CPU, compiling a bf16 product for each size takes oneDNN several
        times as long as the product itself.
        """
        bf16_on_cpu = self.device.type == "cpu" and self.precision == "bf16"
        return self.cuda_graphs is not None or bf16_on_cpu

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> str | None:
        """Train until a rule of the recipe ends the run or a stop is requested; save the state.

        Returns:
            Why training ended; None if a stop was requested.
        """
        self.started = time.monotonic() - self.state.seconds
        self.interval.start_clock(self.state.interval.seconds)
        while True:
            state = self.state
            with Prefetcher(self.updates()) as prefetched:
                stream = iter(prefetched)
                while self.state is state:  # until it is rolled back
                    # a resumed run begins with the validation that a stop interrupted
                    if validation_due(self.recipe, state) and not self._should_stop():
                        with contextlib.suppress(Stopped):
                            self.validate()
                    if self._should_stop():
                        self.save()
                        return None
                    if reason := reason_to_end(self.recipe, state):
                        self.save()
                        self.parallel.copy_to_complete()
                        self.model = self.parallel.complete
                        return reason
                    self.update(next(stream))
                    self.view.update()

    def _should_stop(self) -> bool:
        """Return whether any process must stop, and set the training time to the longest.

        All processes agree on both, so all must call this equally often.
        """
        requested, self.state.seconds = self.world.all_reduce_max(
            self.stop_requested(), self.state.seconds
        )
        return bool(requested)

    # --- one update -----------------------------------------------------------------------------

    def updates(self) -> Iterator[UpdateBatches]:
        """Return the batches of each update, without end, from the place of the state on."""
        task = self.task
        return updates(
            task.plan,
            task.tokens,
            lambda epoch, examples: task.make_batch(epoch, examples, pad=self.pads_batches),
            epoch=self.state.epoch,
            next_batch=self.state.next_batch,
            accumulate=self.recipe.optim.accumulate,
            rank=self.world.rank,
            ranks=self.world.size,
        )

    def update(self, batches: UpdateBatches) -> None:
        """Do one optimizer step on the mean loss over all predicted tokens of its batches.

        This does not wait for a GPU: what it measures is read when a log line is written.
        """
        self.world.enter(f"update {self.state.update + 1}")
        self.model.train()
        losses = self._losses(batches)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        self.parallel.reduce(gradients, [*losses.values()])
        self.interval.add(losses, batches.tokens)
        self.loss_scaler.unscale(self.optimizer)
        norm = self.parallel.total_norm(gradients)
        if not batches.tokens:  # nothing to predict: the mean is 0/0, and the update is skipped
            norm = torch.full_like(norm, math.nan)
        self.state.update += 1  # the number of this update, from 1: n of the schedules
        self.state.epoch, self.state.next_batch = batches.epoch, batches.next_batch
        self.state.target_tokens += batches.tokens
        self.progress.pace.step(batches.tokens)
        self.observe(self.state.update, self.model)
        self._step(norm)
        self.state.seconds = time.monotonic() - self.started
        logs = self.state.update % self.recipe.train.log_every == 0
        if logs:
            self._log_interval(norm)
        if self.state.update % self.check_every == 0:
            self._check_gradients(batches)
        if logs:
            self._check_divergence()

    def _losses(self, batches: UpdateBatches) -> LossSums:
        """Call ``forward_backward`` for the batches of an update, in parts that fit in memory."""
        forward_backward = self.cuda_graphs or self.forward_backward
        while True:
            self.optimizer.zero_grad(set_to_none=self.cuda_graphs is None)
            losses: LossSums = {}
            for part in self._parts(batches):
                try:
                    add_sums(losses, forward_backward(part, batches.tokens))
                except torch.OutOfMemoryError as error:
                    self._halve(part, error)
                    break  # and begin again: some of its gradients may have been added
            else:
                return losses

    def _parts(self, batches: UpdateBatches) -> Iterator[FlatBatch]:
        """Yield the batches of an update, or parts of those that are too large."""
        for planned in batches.own:
            self.model.dropout_rng.seed(self.recipe.seed, planned.epoch, planned.index)
            count = min(-(-planned.batch.tokens // self.largest_batch), len(planned.examples))
            if count < 2:
                yield planned.batch
                continue
            for examples in np.array_split(planned.examples, count):
                yield self.task.make_batch(planned.epoch, examples, pad=False)

    def _halve(self, batch: FlatBatch, error: torch.OutOfMemoryError) -> None:
        """Make later parts at most half as large; MachineError if a batch cannot be divided."""
        what = f"out of memory on {self.device}: {quantity(len(batch.rows), self.task.unit)} with "
        what += f"{batch.tokens:,} tokens to predict"
        # processes with a part of the model compute in step, so one cannot begin again
        if len(batch.rows) == 1 or isinstance(self.parallel, Sharded):
            fix = "use --resume on a device with more memory, or out=PATH with train.recompute=true"
            raise MachineError(what, at="data.batch_tokens", fix=fix) from error
        if self.largest_batch == sys.maxsize:
            self.log.text(f"note: {what}; large batches are computed in parts from now on")
        self.largest_batch = max(1, min(batch.tokens, self.largest_batch) // 2)

    def forward_backward(self, batch: FlatBatch, tokens: int | Tensor) -> LossSums:
        """Add the gradients of a batch's loss, divided by ``tokens`` and scaled.

        Returns:
            The losses without gradients.
        """
        sums = self.task.loss(self.model, batch)
        self.loss_scaler.scale(objective(sums) / tokens).backward()
        return {name: value.detach() for name, value in sums.items()}

    def _step(self, norm: Tensor) -> None:
        """Clip and step; non-finite gradients leave weights and optimizer state unchanged.

        A skipped update is counted like any other: batches and learning rates are functions of the
        number of the update, which no process has to read from a GPU. In fp16 an update is bad only
        at the minimum loss scale; above it the scale was too high and is halved.
        """
        finite, limit = norm.isfinite(), self.recipe.optim.clip_norm
        bad = self.loss_scaler.at_minimum() & ~finite
        self.skipped_updates = self.skipped_updates + bad
        self.bad_updates = torch.where(finite, 0, self.bad_updates + bad)
        shrink = (norm / limit).clamp(min=1.0) if limit else None
        take_step(self.optimizer, learning_rate(self.recipe, self.state), shrink, ~finite)
        self.loss_scaler.adjust()

    def _log_interval(self, norm: Tensor) -> None:
        self.state.skipped_updates = int(self.skipped_updates)
        record = self.interval.close(learning_rate(self.recipe, self.state), norm)
        self.progress.pace.synchronized()
        record["seconds_left"] = self.progress.seconds_left()
        if self.precision == "fp16":
            record["loss_scale"] = self.loss_scaler.state()[0]
        self.progress.loss = record["loss"]
        self.log.record(record)
        known = self.progress.validation_seconds is not None
        line = update_line(record, self.interval.logged, known)
        self.log.text(line, on_console=not self.view.shown or record["skipped_updates"] > 0)

    def _check_gradients(self, batches: UpdateBatches) -> None:
        """Roll back, or raise Diverged, after too many updates in a row with bad gradients."""
        count = self.state.bad_updates = int(self.bad_updates)  # waits for a GPU
        if count < self.recipe.train.max_bad_updates:
            return
        update, norms = self.state.update, self._norms_by_layer()
        own = [int(row) + 1 for planned in batches.own for row in planned.batch.rows]
        rows = self.world.gather(own)
        self.log.record({"kind": "not_finite", "update": update, "rows": rows, "norms": norms})
        scale = f", with the fp16 loss scale at its minimum of {MIN_LOSS_SCALE:g}"
        what = (
            f"gradients were not finite for {quantity(count, 'update')} in a row, up to update "
            f"{update}{scale if self.precision == 'fp16' else ''}; training {self.task.unit}s "
            f"{', '.join(map(str, rows[:8]))}, ... (metrics.jsonl has all); norms of gradients: "
            + ", ".join(f"{layer} {norm:.3g}" for layer, norm in norms.items())
        )
        in_fp32 = "" if self.precision == "fp32" else "continue with precision=fp32 --resume, or "
        if not self._roll_back(what):
            fix = f"{in_fp32}train in another folder (out=PATH) with a lower learning rate"
            raise Diverged(what, fix=fix)

    def _norms_by_layer(self) -> dict[str, float]:
        """Return the L2 norm of the gradients of each layer, and of what is outside of layers."""
        layers: dict[str, list[Tensor]] = {}
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                layer = re.findall(r"^.*layers\.\d+|^\w+", name)[0]
                layers.setdefault(layer, []).append(parameter.grad)
        return {name: float(self.parallel.total_norm(grads)) for name, grads in layers.items()}

    def _roll_back(self, why: str) -> bool:
        """Return to the last validation with half the learning rate; False if that is impossible.

        A later checkpoint is that of a stop; a run that was not stopped does not have it.
        """
        validated = None
        if self.world.is_main and self.state.history and not self.state.rolled_back:
            name = checkpoint_name(self.state.history[-1][0])
            with contextlib.suppress(UserError):
                validated = read_checkpoint(self.run_folder.checkpoints_dir / name)
        checkpoint: Checkpoint | None = self.world.broadcast(validated)
        if checkpoint is None:
            return False
        state = checkpoint.state
        self.log.text(f"warning: {why}; back at update {state.update}, with half the learning rate")
        state.rolled_back, state.bad_updates = True, 0
        state.seconds, state.skipped_updates = self.state.seconds, int(self.skipped_updates)
        self._start_from(checkpoint)
        self.view.end()
        self.view.begin(self.progress)
        self.log.rewind(state.update)
        self._saved = None  # the checkpoint has the state from before
        self.save()
        return True

    def _check_divergence(self) -> None:
        """Raise Diverged if the loss has exploded; an lr_ramp ends by its own rule then."""
        types = len(self.task.prepared.vocab)
        if self.recipe.schedule.kind == "lr_ramp" or not self.interval.diverged(types):
            return
        raise Diverged(
            f"training diverged: up to update {self.state.update}, two log lines in a row have "
            f"a loss of over {DIVERGED} times ln({types:,} types)",
            fix="train in another folder (out=PATH) with a lower learning rate, a longer "
            "warm-up, or optim.clip_norm=1; with --resume it would diverge again",
        )

    # --- one validation -------------------------------------------------------------------------

    def validate(self) -> None:
        """Score dev; write a log line, the output, a checkpoint and, if it is better, the model.

        Raises:
            Stopped: a stop was requested meanwhile; nothing is kept of the validation.
        """
        training_seconds = self.interval.elapsed()
        self.world.enter(f"validation after update {self.state.update}")
        with self.progress.validation():
            try:
                self._validate(training_seconds)
            finally:
                self.interval.start_clock(training_seconds)  # a validation is not training time

    def _validate(self, training_seconds: float) -> None:
        measured = None
        self.parallel.copy_to_complete()
        if self.world.is_main:
            with contextlib.suppress(Stopped):
                measured = self.evaluate("dev")
        self.parallel.release_complete()
        result: Evaluation | None = self.world.broadcast(measured)
        if result is None:
            raise Stopped
        select_by = self.recipe.score.select_by
        score = as_score(select_by, result.values[select_by])
        state = self.state
        best = state.best_score
        state.history.append((state.update, score))
        first = best is None or math.isnan(best)
        improved = not math.isnan(score) and (  # NaN is never better
            first or rank(state.update, score) > rank(state.best_update or 0, best or 0.0)
        )
        if improved or state.best_update is None:
            state.best_update = state.update
        self.write_hypotheses(checkpoint_name(state.update), result)
        record = {"kind": "dev", "update": state.update, "seconds": state.seconds, **result.values}
        self.log.record(record)
        self.log.text(dev_line(state, select_by, result, improved))
        if self.world.is_main:
            warning = equal_scores_warning(self.run_folder, state, select_by)
            if warning is not None:
                self.log.text(warning)
        self.interval.start_clock(training_seconds)  # save() stores it without this validation
        self.save()
        if self.world.is_main:
            self.on_validation(Validation(state.update, state.epoch, result.values, improved))

    def evaluate(self, split: Split, intervals: bool = False) -> Evaluation:
        """Evaluate the current model on dev or test; see ``Task.evaluate``."""

        def stop_requested() -> bool:
            self.view.refresh()
            return self.stop_requested()

        return self.task.evaluate(self.parallel.complete, split, stop_requested, intervals)

    # --- what is written ------------------------------------------------------------------------

    def write_hypotheses(self, checkpoint: str, dev: Evaluation) -> None:
        """Write what a checkpoint puts out on dev, for nmt-score."""
        if self.world.is_main:
            dev.write(self.run_folder.dev_dir / f"{checkpoint}.hyp")

    def save(self) -> None:
        """Write a checkpoint of the current state, unless it exists."""
        state = self.state
        current = (state.update, len(state.history))
        if self._saved == current:
            return
        weights = self.parallel.gather(self.model.state_dict())
        moments = self.parallel.gather(optimizer_tensors(self.optimizer, self.model))
        if self.world.is_main:
            self._write_checkpoint(weights, moments)
        self._saved = current

    def _write_checkpoint(self, weights: dict[str, Tensor], moments: dict[str, Tensor]) -> None:
        state = self.state
        state.seconds = time.monotonic() - self.started
        state.bad_updates = int(self.bad_updates)
        state.skipped_updates = int(self.skipped_updates)
        if self.precision == "fp16":
            state.loss_scale, state.loss_scale_updates = self.loss_scaler.state()
        self.interval.store()
        keep = checkpoints_to_keep(self.recipe.train)
        path = save_checkpoint(self.run_folder, state, weights, moments, keep)
        if state.best_update == state.update:
            self.publish(path.name, weights, dict(state.history).get(state.update))

    def publish(self, name: str, weights: Mapping[str, Tensor], score: float | None) -> None:
        """Make the weights of a checkpoint, or an average, the model of the run."""
        vocab, segmenter = self.task.prepared.vocab, self.task.prepared.segmenter
        write_run_model(self.run_folder, name, self.state, weights, vocab, segmenter, score)
