"""Updates without finite gradients in a row: the run is rolled back once, then it stops."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.cli.train import main
from nmt.data.batches import UpdateBatches
from nmt.errors import Diverged
from nmt.store.checkpoint import load_checkpoint
from nmt.store.folder import RunFolder
from nmt.store.model import Model
from nmt.store.results import read_summary
from nmt.store.tensors import non_finite, read_weights
from nmt.training import trainer as trainer_module
from nmt.training.trainer import Trainer
from tests.test_resume import call_after, difference, result
from tests.training.helpers import equal, moments, records, spoil_gradients, weights

BAD = {6, 7, 8}
KEYS = ("train.max_bad_updates=3", "train.validate_every=4", "train.max_validations=3")


def spoil(monkeypatch: pytest.MonkeyPatch, *, again: bool) -> None:
    """Make gradients NaN in the updates BAD; also with half the learning rate, if ``again``."""
    real = Trainer._losses

    def losses(trainer: Trainer, batches: UpdateBatches) -> Tensor:
        found = real(trainer, batches)
        if trainer.state.update + 1 in BAD and (again or not trainer.state.rolled_back):
            parameter = trainer.model.get_parameter("encoder.layers.0.ffn.fc1.weight")
            assert parameter.grad is not None
            own = getattr(parameter.grad, "to_local", lambda: parameter.grad)()  # if sharded
            own[0, 0] = math.nan
        return found

    monkeypatch.setattr(Trainer, "_losses", losses)


@pytest.fixture
def command(recipe) -> list[str]:
    return [str(recipe), *KEYS, "model.dropout=0.3", "optim.accumulate=2", "train.log_every=3"]


@pytest.mark.parametrize("kind", ["adam", "radam", "muon", "adafactor"])
def test_the_state_of_the_last_validation_continues_at_half_the_rate(start, monkeypatch, kind):
    trainer = start(*KEYS, f"optim.kind={kind}")
    spoil(monkeypatch, again=False)
    seen: list[Any] = []

    def rewound(update: int, validated: bool = True) -> None:
        seen.append((update, weights(trainer), moments(trainer)))

    trainer.log.rewind = rewound  # type: ignore[method-assign]
    kept: list[Any] = []
    trainer.on_validation = lambda v: kept.append((v.update, weights(trainer), moments(trainer)))
    trainer.run()
    ((update, found_weights, found_moments),) = seen
    assert update == kept[0][0] == 4
    assert equal(found_weights, kept[0][1])
    assert equal(found_moments, kept[0][2])
    assert trainer.state.update == 12
    assert [update for update, _ in trainer.state.history] == [4, 8, 12]
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 3e-3)


def test_records_and_counts_after_a_roll_back(command, tmp_path, monkeypatch, capsys):
    spoil(monkeypatch, again=False)
    run = tmp_path / "run"
    assert main([*command, f"out={run}"]) == 0
    rates = {record["update"]: record["lr"] for record in records(run, "train")}
    assert rates == pytest.approx({3: 3e-3, 6: 1.5e-3, 9: 1.5e-3, 12: 1.5e-3})
    assert [record["update"] for record in records(run, "train")] == [3, 6, 9, 12]
    assert not records(run, "not_finite")  # update 8 is made again
    assert read_summary(RunFolder.open(run))["skipped_updates"] == len(BAD)
    assert capsys.readouterr().err.count("back at update 4, with half the learning rate") == 1


def test_the_second_time_the_run_stops_and_names_rows_and_layers(
    command, tmp_path, monkeypatch, capsys
):
    spoil(monkeypatch, again=True)
    run = RunFolder(tmp_path / "run")
    for flags in ([], ["--resume"]):  # it is not rolled back once more
        assert main([*command, f"out={run.path}", *flags]) == 3
        err = capsys.readouterr().err
        assert err.count("with half the learning rate") == (not flags)
        assert "3 updates in a row, up to update 8; training pairs " in err
        assert "encoder.layers.0 nan" in err
        assert "decoder.layers.0 nan" not in err
        assert read_summary(run)["status"] == "diverged"
        (bad,) = records(run.path, "not_finite")
        assert bad["update"] == 8
        assert bad["norms"]["encoder.layers.0"] is None  # JSON has no NaN
        assert bad["norms"]["decoder.layers.0"] > 0
        assert len({*bad["rows"]}) == len(bad["rows"]) > 8
        assert all(1 <= row <= 100 for row in bad["rows"])
    state = load_checkpoint(run).state
    assert (state.update, state.rolled_back) == (4, True)
    assert not non_finite(read_weights(Model.open(run.path)))


def test_a_state_without_moments_leaves_none_of_later_updates(start):
    """RAdam has none while all updates are skipped."""
    stopped = start("optim.kind=radam", stop_after=0)
    stopped.run()
    trainer = start("optim.kind=radam")
    trainer.update(next(trainer.updates()))
    assert moments(trainer)
    trainer._start_from(load_checkpoint(stopped.run_folder))
    assert not moments(trainer)


def test_without_a_validation_there_is_nothing_to_return_to(start):
    stopped = start(*KEYS, stop_after=1)
    stopped.run()  # it has a checkpoint; a run that was not stopped would have none
    resumed = start(*KEYS, checkpoint=load_checkpoint(stopped.run_folder))
    spoil_gradients(resumed, {2, 3, 4})
    with pytest.raises(Diverged):
        resumed.run()


def test_a_damaged_checkpoint_is_not_returned_to(start, monkeypatch):
    trainer = start(*KEYS)
    spoil(monkeypatch, again=False)

    def damage(_: Any) -> None:
        (trainer.run_folder.checkpoints()[-1] / "model.safetensors").write_bytes(b"x")

    trainer.on_validation = damage
    with pytest.raises(Diverged):
        trainer.run()


# ---------------------------------------------------------------- exact resume


@pytest.fixture
def whole(command, tmp_path, monkeypatch) -> dict[str, Any]:
    spoil(monkeypatch, again=False)
    assert main([*command, f"out={tmp_path / 'whole'}"]) == 0
    return result(tmp_path / "whole")


def at_update(number: int, act: Callable[[], object]) -> Callable[[Trainer], None]:
    """Return what acts at the end of the ``number``-th call."""
    left = [number]

    def called(_: Trainer) -> None:
        left[0] -= 1
        if not left[0]:
            act()

    return called


def kill() -> None:
    raise MemoryError


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "call", "act"),
    [
        ("update", 5, terminate),  # its checkpoint is newer than the validation
        ("update", 7, terminate),  # among the bad updates
        ("update", 8, terminate),  # just rolled back
        ("update", 9, terminate),
        ("update", 7, kill),
        ("_start_from", 2, kill),  # rolled back, and not saved yet
        ("save", 2, kill),  # rolled back and saved
        ("update", 9, kill),
    ],
)
def test_a_stopped_or_killed_run_equals_one_that_was_not(
    whole, command, tmp_path, monkeypatch, method, call, act
):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        call_after(patch, Trainer, method, at_update(call, act))
        assert main([*command, f"out={run}"]) == (143 if act is terminate else 4)
    assert main([*command, f"out={run}", "--resume"]) == 0
    assert not difference(result(run), whole)


# ---------------------------------------------------------------- weights, and nothing to predict


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_never_become_the_model(recipe, tmp_path, monkeypatch, value):
    """Validation 2 has a better score, and its weights are broken."""
    run, step = tmp_path / "run", trainer_module.take_step

    def broken(optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        step(optimizer, *arguments)
        parameter = optimizer.param_groups[0]["params"][0]
        if optimizer.state[parameter]["step"] == 8:
            parameter.data.view(-1)[0] = value

    monkeypatch.setattr(trainer_module, "take_step", broken)
    real = Trainer.evaluate

    def better(trainer: Trainer, *arguments: Any, **named: Any) -> Any:
        found = real(trainer, *arguments, **named)
        found.values["bleu"] = float(trainer.state.update)
        return found

    monkeypatch.setattr(Trainer, "evaluate", better)
    assert main([str(recipe), f"out={run}", "model.norm=layernorm"]) == 3
    assert RunFolder.open(run).best() == "u000004"
    assert not non_finite(read_weights(Model.open(run)))


def test_an_update_with_nothing_to_predict_is_skipped_and_counted(start):
    """No task of ours makes one: blocks of text without predictions are left out."""
    trainer = start("train.log_every=1")
    updates = trainer.updates()
    trainer.update(next(updates))
    kept_weights, kept_moments = weights(trainer), moments(trainer)
    trainer.update(UpdateBatches([], 0, 0, 1))
    assert equal(weights(trainer), kept_weights)
    assert equal(moments(trainer), kept_moments)
    _, record = records(trainer.run_folder.path, "train")
    assert (record["loss"], record["skipped_updates"]) == (0, 1)
    trainer.update(next(updates))
    assert int(trainer.bad_updates) == 0
    assert not equal(weights(trainer), kept_weights)
