"""The training loop: updates, validation, checkpoints, the end.

Everything that changes the result is a function of (recipe, seed, data, update number, dev
history), so a resumed run equals one that never stopped.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from nmt.config.recipe import Recipe
from nmt.data.batches import Batch, Update, collate, make_batches, updates
from nmt.data.buckets import bucket_for
from nmt.data.prefetch import Prefetcher
from nmt.data.prepare import EvalSet, Prepared
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import all_cores
from nmt.errors import RunError
from nmt.model.cpu import kernels
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import (
    Checkpoint,
    TrainState,
    checkpoint_name,
    checkpoints_to_keep,
    save_checkpoint,
)
from nmt.run.folder import RunFolder
from nmt.run.metrics_log import Logger
from nmt.runtime.device import autocast
from nmt.runtime.distributed import World
from nmt.runtime.matmul import onednn_matmul
from nmt.training.cuda_graphs import Capture, CudaCapture, CudaGraphs
from nmt.training.loss import label_smoothed_loss
from nmt.training.optimizer import (
    MIN_LOSS_SCALE,
    LossScaler,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    take_step,
)
from nmt.training.progress import DIVERGED, Interval
from nmt.training.validation import Evaluation, Stopped, evaluate


class Trainer:
    """Trains one model into one run folder.

    Args:
        recipe: resolved.
        prepared: corpora, segmenter and vocabulary.
        run: the locked run folder.
        device, precision: resolved.
        log: where lines and records go.
        stop_requested: asked between updates; True = save and return.
        start: the checkpoint to continue from, None = from the first update.
        observe: called with each update's number and the model, its gradients not yet clipped.
        world: the processes that train together; all but the first write nothing.
    """

    def __init__(
        self,
        recipe: Recipe,
        prepared: Prepared,
        run: RunFolder,
        device: torch.device,
        precision: str,
        log: Logger,
        stop_requested: Callable[[], bool],
        start: Checkpoint | None = None,
        observe: Callable[[int, Transformer], None] = lambda update, model: None,
        world: World = World(),  # noqa: B008  it cannot change
    ) -> None:
        self.recipe, self.prepared, self.run_folder, self.log = recipe, prepared, run, log
        self.device, self.precision, self.world = device, precision, world
        self.stop_requested, self.observe = stop_requested, observe
        model = Transformer(
            recipe.model, len(prepared.vocab), torch.from_numpy(prepared.vocab.types_of("tgt"))
        )
        model.init_weights(torch.Generator().manual_seed(recipe.seed))
        self.model = model.to(device)
        self.optimizer = make_optimizer(recipe.optim, self.model)
        self.state = TrainState()
        if start is not None:
            self.state = start.state
            self.model.load_state_dict(start.model)
            load_optimizer_tensors(self.optimizer, self.model, start.optimizer)
        state = self.state
        self.loss_scaler = LossScaler(
            device, precision == "fp16", state.loss_scale, state.loss_scale_updates
        )
        self.state.content, self.state.precision = prepared.content, precision
        self.state.update_batches = recipe.optim.accumulate * world.size
        self._saved = (self.state.update, len(self.state.history)) if start else None
        # skipped updates in a row are counted on the device: to read from a GPU is to wait for it
        self.bad_updates = torch.tensor(self.state.bad_updates, device=device)
        self.look_every = 1 if device.type == "cpu" else recipe.train.log_every
        self.cuda_graphs: CudaGraphs | None = None
        if recipe.graphs == "auto" and device.type == "cuda":
            self.use_cuda_graphs(CudaCapture())
        if device.type == "cpu":
            kernels.load()  # now: the first validation computes exactly as the others
        self.translator = Translator(
            self.model,
            prepared.segmenter,
            prepared.vocab,
            recipe.src,
            recipe.tgt,
            recipe.decode,
            device,
            workers=all_cores(),
        )
        self.state.text_fingerprint = self.translator.text_fingerprint
        self.interval = Interval(self.state, recipe)

    def use_cuda_graphs(self, record: Capture) -> None:
        """Fill batches up to a few shapes, and record the work of each shape that comes back."""
        self.cuda_graphs = CudaGraphs(self.compute, self.model, record, self.log.text)

    def run(self) -> str | None:
        """Train until something ends the run.

        Returns:
            The reason, or None when a stop was requested and the state was saved.
        """
        self.started = time.monotonic() - self.state.seconds
        self.interval.start_clock(self.state.interval.seconds)
        with Prefetcher(self.updates()) as prefetched, self._progress_bar() as bar:
            stream = iter(prefetched)
            while True:
                # due also after a resume, when a stop cut the validation short
                if self._validation_due() and not self._stopping():
                    with contextlib.suppress(Stopped):
                        self.validate()
                        bar.reset()
                if self._stopping():
                    self.save()
                    return None
                if reason := self._finished():
                    self.save()
                    return reason
                self.update(next(stream))
                bar.update()

    def update(self, update: Update) -> None:
        """One optimizer step over the update's batches, each divided by the tokens of all.

        Nothing here waits for a GPU; what is measured is read when a line is written.
        """
        self.model.train()
        self.optimizer.zero_grad(set_to_none=self.cuda_graphs is None)
        compute = self.cuda_graphs or self.compute
        losses = torch.zeros(2, device=self.device)
        for p in update.planned:
            self.model.dropout_rng.seed(self.recipe.seed, p.epoch, p.index)
            losses += compute(p.batch, update.tokens)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        self.world.all_reduce_sum([*gradients, losses])
        self.interval.add(losses[0], losses[1], update.tokens)
        self.loss_scaler.unscale(self.optimizer)
        norm = torch.nn.utils.get_total_norm(gradients)
        self.state.update += 1
        self.state.epoch, self.state.next_batch = update.epoch, update.next_batch
        self.state.target_tokens += update.tokens
        self.observe(self.state.update, self.model)
        self._step(norm, update)
        self.state.seconds = time.monotonic() - self.started
        if self.state.update % self.recipe.train.log_every == 0:
            record = self.interval.close(self.lr(), norm)
            if self.precision == "fp16":
                record["loss_scale"] = self.loss_scaler.state()[0]
            self.log.record(record)
            self.log.text(self.interval.line(record))
            self._end_if_diverged()

    def compute(self, batch: Batch, tokens: int | Tensor) -> Tensor:
        """Forward and backward: adds the batch's share of the mean loss to the gradients, scaled.

        Returns:
            [2], the sums of the smoothed loss and of the cross-entropy.
        """
        smoothing, allowed = self.recipe.optim.label_smoothing, self.model.allowed
        with onednn_matmul(self.device):
            with autocast(self.device, self.precision):
                logits = self.model(batch)
            sums = label_smoothed_loss(logits, batch.tgt_out, allowed, smoothing, batch.weights)
            self.loss_scaler.scale(sums.smoothed / tokens).backward()
        return torch.stack([sums.smoothed.detach(), sums.nll])

    def lr(self) -> float:
        """Learning rate of the present update."""
        return self.recipe.schedule.lr(
            max(1, self.state.update), self.state.history, self.recipe.model.dim
        )

    def validate(self) -> None:
        """Perplexities, hypotheses and scores on dev; one line, one record, one checkpoint."""
        measured = None
        if self.world.is_main:
            with contextlib.suppress(Stopped):
                measured = self.evaluate(self.prepared.dev)
        result: Evaluation | None = self.world.broadcast(measured)
        if result is None:
            raise Stopped
        score = result.value(self.recipe.score.select_by)
        state = self.state
        best = dict(state.history).get(state.best_update or 0, math.nan)
        state.history.append((state.update, score))
        # NaN is never better; a tie keeps the earlier checkpoint
        improved = score > best or (math.isnan(best) and not math.isnan(score))
        if improved or state.best_update is None:
            state.best_update = state.update
        self.write_hypotheses(checkpoint_name(state.update), result)
        self.log.record({"kind": "dev", "update": state.update, **result.record()})
        self.log.text(self.interval.dev_line(len(state.history), result, improved))
        self.interval.restart()
        self.save()
        self.interval.start_clock()

    def evaluate(self, split: EvalSet, intervals: bool = False) -> Evaluation:
        """Score the model as it is on a tuning or test set."""
        with autocast(self.device, self.precision):
            return evaluate(
                self.model,
                self.translator,
                self.prepared,
                split,
                self.recipe,
                self.stop_requested,
                intervals,
            )

    def write_hypotheses(self, checkpoint: str, dev: Evaluation) -> None:
        """What a checkpoint makes of dev, for nmt-score."""
        if not self.world.is_main:
            return
        dev.write(self.run_folder.dev_dir / f"{checkpoint}.hyp")

    def save(self) -> None:
        """Write a checkpoint of this very update, unless there is one."""
        if not self.world.is_main or self._saved == (self.state.update, len(self.state.history)):
            return
        self.state.seconds = time.monotonic() - self.started
        self.state.bad_updates = int(self.bad_updates)
        if self.precision == "fp16":
            self.state.loss_scale, self.state.loss_scale_updates = self.loss_scaler.state()
        self.interval.store()
        save_checkpoint(
            self.run_folder,
            self.state,
            {name: t.detach() for name, t in self.model.state_dict().items()},
            optimizer_tensors(self.optimizer, self.model),
            keep=checkpoints_to_keep(self.recipe.train),
        )
        self._saved = (self.state.update, len(self.state.history))

    def _stopping(self) -> bool:
        """Whether any process was asked to stop; all agree on that, and on the time."""
        asked, self.state.seconds = self.world.all_reduce_max(
            self.stop_requested(), self.state.seconds
        )
        return bool(asked)

    def out_of_time(self) -> bool:
        """Whether the hours of ``time_limit`` are over, all starts of the run together."""
        limit = self.recipe.time_limit
        return limit is not None and self.state.seconds > limit * 3600

    def _step(self, norm: Tensor, update: Update) -> None:
        """Clip and step; a non-finite gradient changes neither weights nor moments.

        The update counts all the same: batches and rates are functions of its number, which no
        process has to read from a GPU. In fp16 it is bad only when the loss scale is at its floor;
        above it, the scale was too high and is halved.
        """
        finite, limit = norm.isfinite(), self.recipe.optim.clip_norm
        bad = self.bad_updates + self.loss_scaler.at_minimum()
        self.bad_updates = torch.where(finite, 0, bad)
        shrink = (norm / limit).clamp(min=1.0) if limit else None
        take_step(self.optimizer, self.lr(), shrink, ~finite)
        self.loss_scaler.adjust()
        if self.state.update % self.look_every == 0:
            self._end_if_stuck(update)

    def _end_if_stuck(self, update: Update) -> None:
        """Raises RunError after too many updates without a finite gradient; waits for a GPU."""
        self.state.bad_updates = int(self.bad_updates)
        if self.state.bad_updates >= self.recipe.train.max_bad_updates:
            rows = ", ".join(str(r + 1) for r in update.planned[0].batch.rows[:8])
            floor = ""
            if self.precision == "fp16":
                floor = f", with the fp16 loss scale at its floor of {MIN_LOSS_SCALE:g}"
            raise RunError(
                f"gradients were not finite for {self.state.bad_updates} updates in a row, up to "
                f"update {self.state.update} (training pairs {rows}, ...){floor}",
                fix="continue with precision=fp32 --resume, or train in another folder (out=PATH) "
                "with a lower learning rate",
            )

    def _end_if_diverged(self) -> None:
        """Raise RunError when the loss is out of all bounds, which a ramp of the rate looks for."""
        if self.recipe.schedule.kind == "lr_ramp":
            return
        if self.interval.diverged(len(self.prepared.vocab)):
            raise RunError(
                f"training diverged: up to update {self.state.update}, two log lines in a row have "
                f"a loss of over {DIVERGED} times ln({len(self.prepared.vocab):,} types)",
                fix="train in another folder (out=PATH) with a lower learning rate, a longer "
                "warm-up, or optim.clip_norm=1; --resume would come here again",
            )

    def updates(self) -> Iterator[Update]:
        """The updates from where the state stands, without end."""
        data, corpus, seed = self.recipe.data, self.prepared.train, self.recipe.seed

        def plan_epoch(epoch: int) -> list[np.ndarray]:
            return make_batches(
                corpus.src_len, corpus.tgt_len, data.batch_tokens, seed, epoch, data.rebatch
            )

        def make(rows: np.ndarray) -> Batch:
            if self.cuda_graphs is None:
                return collate(corpus, rows).to(self.device)
            src_len, tgt_len = corpus.src_len[rows] + 1, corpus.tgt_len[rows] + 1
            bucket = bucket_for(src_len, tgt_len, data.batch_tokens)
            return collate(corpus, rows, bucket).pack(self.device)

        return updates(
            corpus.tgt_len,
            plan_epoch,
            make,
            self.state.epoch,
            self.state.next_batch,
            self.recipe.optim.accumulate,
            self.world.rank,
            self.world.size,
        )

    def _validation_due(self) -> bool:
        """At the end of an epoch, and at ``total_updates`` of a schedule, if it is within one."""
        update, history = self.state.update, self.state.history
        done = bool(history) and history[-1][0] == update
        of_epoch = update % self.recipe.train.validate_every == 0
        return update > 0 and (of_epoch or update == self.interval.last_update()) and not done

    def _progress_bar(self) -> tqdm[NoReturn]:
        """Updates of the present epoch, on a terminal only."""
        validate_every = self.recipe.train.validate_every
        return tqdm(
            total=validate_every,
            initial=self.state.update % validate_every,
            unit=" updates",
            leave=False,
            disable=None if self.world.is_main else True,
        )

    def _finished(self) -> str | None:
        """Why training ends now, or None."""
        train, state = self.recipe.train, self.state
        if self.recipe.schedule.finished(state.update, self.interval.loss_ratio):
            return f"the {self.recipe.schedule.kind} schedule ended"
        if self.out_of_time():
            return f"time_limit of {self.recipe.time_limit:g} hours"
        if not state.history or state.history[-1][0] != state.update:
            return None
        if len(state.history) >= train.max_validations:
            return f"train.max_validations = {train.max_validations}"
        since_best = sum(update > (state.best_update or 0) for update, _ in state.history)
        if since_best >= train.stop_patience:
            return f"no better {self.recipe.score.select_by} in {since_best} validations"
        lr = self.lr()
        if lr < train.min_lr and lr < self._peak_lr():
            return f"learning rate {lr:.1e} below train.min_lr = {train.min_lr:g}"
        return None

    def _peak_lr(self) -> float:
        """The highest rate at any validation so far: a rising rate is no reason to end."""
        schedule, dim, history = self.recipe.schedule, self.recipe.model.dim, self.state.history
        return max(schedule.lr(u, history[:i], dim) for i, (u, _) in enumerate(history))
