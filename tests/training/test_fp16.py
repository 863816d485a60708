"""Training in fp16 on a CPU: the loss scale, skipped updates, and exact resume."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from nmt.cli.train import main
from nmt.errors import RunError
from nmt.runtime.distributed import World
from nmt.store.checkpoint import TrainState, load_checkpoint
from nmt.training import cuda_graphs
from nmt.training.trainer import Trainer
from tests.training.helpers import (
    CountReads,
    FakeCapture,
    equal,
    gradients,
    moments,
    norm,
    records,
    spoil_gradients,
    weights,
)

FIRST = 2.0**16


@pytest.fixture
def start(start) -> Callable[..., Trainer]:
    """Return ``start`` for fp16."""
    return functools.partial(start, precision="fp16")


def at_scale(trainer: Trainer, scale: float, updates: int = 0) -> Trainer:
    """Set the scale and its count of finite updates."""
    found = trainer.loss_scaler._scaler
    found.load_state_dict({**found.state_dict(), "scale": scale, "_growth_tracker": updates})
    return trainer


@pytest.mark.slow
def test_fp16_losses_are_close_to_fp32_losses(start):
    """fp16 has 11 bits, so a product has an error of 2^-11; the largest loss error was 2.6e-4."""
    losses = []
    for precision in ("fp32", "fp16"):
        trainer = start(precision=precision)
        for update in itertools.islice(trainer.updates(), 40):
            trainer.update(update)
        losses.append([r["loss"] for r in records(trainer.run_folder.path, "train")])
        assert int(trainer.bad_updates) == 0
    exact, rounded = losses
    assert len(exact) == len(rounded) == 40
    assert rounded == pytest.approx(exact, rel=4 * 2**-11)
    assert rounded[-1] < 0.85 * rounded[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adam", "adamw", "radam", "muon", "adafactor"])
def test_an_overflow_is_skipped_and_halves_the_scale(start, kind):
    trainer = start(f"optim.kind={kind}", "optim.accumulate=2")
    updates = trainer.updates()
    trainer.update(next(updates))
    assert trainer.loss_scaler.state() == (FIRST, 1)
    kept_weights, kept_moments = weights(trainer), moments(trainer)
    at_scale(trainer, 2.0**40)
    for number in (1, 2):
        trainer.update(next(updates))
        assert not all(g.isfinite().all() for g in gradients(trainer).values())
        assert trainer.loss_scaler.state() == (2.0 ** (40 - number), 0)
        assert equal(weights(trainer), kept_weights)
        assert equal(moments(trainer), kept_moments)
    assert int(trainer.bad_updates) == int(trainer.skipped_updates) == 0
    assert trainer.state.update == 3  # batches and learning rates advance
    at_scale(trainer, 2.0**10)
    trainer.update(next(updates))
    assert trainer.loss_scaler.state() == (2.0**10, 1)
    assert not equal(weights(trainer), kept_weights)


def test_the_scale_doubles_after_2000_finite_updates(start):
    trainer = at_scale(start(), FIRST, 1998)
    updates = trainer.updates()
    trainer.update(next(updates))
    assert trainer.loss_scaler.state() == (FIRST, 1999)
    trainer.update(next(updates))
    assert trainer.loss_scaler.state() == (2 * FIRST, 0)


def test_activations_that_overflow_skip_the_update(start):
    trainer = start("model.activation=relu2")
    with torch.no_grad():
        for parameter in trainer.model.encoder.layers[0].ffn.fc1.parameters():
            parameter.fill_(300)
    kept = weights(trainer)
    trainer.update(next(trainer.updates()))
    assert equal(weights(trainer), kept)
    assert trainer.loss_scaler.state() == (FIRST / 2, 0)


def test_bad_updates_are_counted_at_the_minimum_of_the_scale(start):
    trainer = at_scale(start("train.max_bad_updates=3"), 4.0)
    spoil_gradients(trainer, set(range(1, 9)))
    updates, scales = trainer.updates(), []
    for _ in range(4):
        trainer.update(next(updates))
        scales.append((trainer.loss_scaler.state()[0], int(trainer.bad_updates)))
    with pytest.raises(RunError, match="not finite for 3 updates in a row, up to update 5") as e:
        trainer.update(next(updates))
    assert scales == [(2, 0), (1, 0), (1, 1), (1, 2)]
    assert int(trainer.skipped_updates) == 3
    assert "fp16 loss scale at its minimum of 1" in e.value.what
    assert e.value.fix is not None
    assert "precision=fp32" in e.value.fix
    assert "lower learning rate" in e.value.fix


def test_log_observers_and_clipping_see_unscaled_gradients(start):
    """A scale that is a power of 2 does not round."""
    seen = []
    for precision in ("fp32", "fp16"):
        trainer = start(
            "optim.clip_norm=0.25",
            precision=precision,
            observe=lambda update, model: seen.append(
                norm({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
            ),
        )
        trainer.update(next(trainer.updates()))
        assert norm(gradients(trainer)) == pytest.approx(0.25, rel=1e-5)
        logged = records(trainer.run_folder.path, "train")[0]
        assert logged["grad_norm"] == pytest.approx(seen[-1], rel=1e-6)
        assert logged.get("loss_scale") == (FIRST if precision == "fp16" else None)
    assert seen[1] == pytest.approx(seen[0], rel=0.01)


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_never_stopped(start):
    """With overflows before and after the stop, and with a scale that doubles between them."""
    keys = ("optim.accumulate=2", "train.validate_every=6", "train.max_validations=2")

    def run(**more: object) -> Trainer:
        trainer = start(*keys, **more)
        spoil_gradients(trainer, {2, 7})
        if "checkpoint" not in more:
            at_scale(trainer, 2.0**20, 1999)  # updates 1 and 3 overflow by themselves
        trainer.run()
        return trainer

    whole, stopped = run(), run(stop_after=5)
    checkpoint = load_checkpoint(stopped.run_folder)
    assert checkpoint.state.update == 5
    scale, updates = stopped.loss_scaler.state()
    assert (checkpoint.state.loss_scale, checkpoint.state.loss_scale_updates) == (scale, updates)
    assert scale not in (FIRST, 2.0**20)
    assert updates > 0
    resumed = run(checkpoint=checkpoint)
    assert resumed.state.update == whole.state.update == 12
    assert equal(weights(resumed), weights(whole))
    assert equal(moments(resumed), moments(whole))
    assert resumed.loss_scaler.state() == whole.loss_scaler.state()


def test_a_checkpoint_without_a_scale_starts_with_the_first_scale():
    assert TrainState.from_json('{"update": 3}') == TrainState(update=3)
    assert (TrainState().loss_scale, TrainState().loss_scale_updates) == (FIRST, 0)


def test_other_precisions_do_not_scale_the_loss(start):
    trainer = start(precision="bf16")
    trainer.update(next(trainer.updates()))
    loss = torch.tensor(3.0)
    assert trainer.loss_scaler.scale(loss) is loss
    assert bool(trainer.loss_scaler.at_minimum())  # every non-finite update is a bad one


def test_updates_read_nothing_between_log_lines(start):
    trainer = start("train.log_every=4", "optim.accumulate=2")
    trainer.check_every = 4  # as on a GPU
    at_scale(trainer, 2.0**40)
    updates = trainer.updates()
    with CountReads() as reads:
        for _ in range(3):
            trainer.update(next(updates))
    assert reads.count == 0
    assert trainer.loss_scaler.state() == (2.0**37, 0)


def test_captured_updates_read_the_scale_at_a_fixed_address(start, monkeypatch):
    monkeypatch.setattr(cuda_graphs, "CAPTURE_AT_VISIT", 2)
    found = []
    for capture in (None, FakeCapture()):
        trainer = at_scale(start("train.validate_every=8", "train.max_validations=1"), 2.0**22)
        trainer.use_cuda_graphs(capture or (lambda work: work))
        scale = trainer.loss_scaler._scaler._scale
        trainer.run()
        assert trainer.loss_scaler._scaler._scale is scale
        assert scale < 2.0**22
        found.append((weights(trainer), float(scale)))
    assert equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


class Other(World):
    """Another process whose gradients overflow in the second update."""

    updates = 0

    def all_reduce_sum(self, tensors: Sequence[Tensor]) -> None:
        Other.updates += 1
        if Other.updates == 2:
            tensors[0].view(-1)[0] = math.inf


def test_all_processes_skip_an_overflow_of_one(start):
    trainer = start(world=Other())
    updates = trainer.updates()
    trainer.update(next(updates))
    kept = weights(trainer)
    trainer.update(next(updates))
    assert equal(weights(trainer), kept)
    assert trainer.loss_scaler.state() == (FIRST / 2, 0)


def test_an_emulated_precision_is_reported_once(recipe, tmp_path):
    run = tmp_path / "run"
    short = ["train.validate_every=1", "train.max_validations=1", "precision=fp16"]
    assert main([str(recipe), f"out={run}", *short]) == 0
    log = (run / "train.log").read_text()
    assert log.count("slower than fp32") == 1
    assert "cpu, fp16" in log
