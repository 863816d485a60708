"""Two runs in one folder, and stop signals during a save."""

from __future__ import annotations

import importlib
import os
import signal

import pytest

from nmt.data import prepare
from nmt.errors import MachineError, UserError
from nmt.runtime.signals import handle_signals, stop_signals
from nmt.store.folder import RunFolder
from nmt.store.lifecycle import TrainingFolder
from tests.children import kill, start_holding
from tests.run_cases import RECIPE, Steps, count_steps, holds, load, reopen, save
from tests.toy import toy_corpus, toy_recipe


def test_a_second_training_is_refused_until_the_first_is_gone(tmp_path):
    def take() -> TrainingFolder:
        run = TrainingFolder(tmp_path / "run", RECIPE)
        run.__enter__()
        save(run, 1)
        return run

    child = start_holding(take)
    for flags in ({}, {"resume": True}, {"fresh": True}):
        with pytest.raises(MachineError, match=f"in use by pid {child} on .* since") as caught:
            TrainingFolder(tmp_path / "run", RECIPE, **flags)
        assert caught.value.exit_code == 4
    kill(child)
    with reopen(tmp_path / "run") as run:
        assert holds(load(run)[0], 1)


def test_of_two_simultaneous_starts_one_is_refused(tmp_path):
    first = TrainingFolder(tmp_path / "run", RECIPE)
    second = TrainingFolder(tmp_path / "run", RECIPE)
    with first:
        save(first, 1)
        with pytest.raises(MachineError, match="in use"):
            second.__enter__()
    with pytest.raises(UserError, match="--resume"):  # the first one has saved a checkpoint
        second.__enter__()
    assert holds(load(RunFolder.open(tmp_path / "run"))[0], 1)
    assert not first.lock.in_use()


def test_a_training_that_lost_its_lock_writes_nothing(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 1)
        (run.path / "lock").unlink()
        with reopen(run.path) as other:
            with pytest.raises(MachineError, match="has taken over the run folder"):
                save(run, 2)
            assert holds(load(other)[0], 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_during_a_save_waits_for_its_end(tmp_path, number):
    with TrainingFolder(tmp_path / "run", RECIPE) as run, stop_signals() as stop:
        with pytest.MonkeyPatch.context() as patch:
            Steps(patch, lambda: os.kill(os.getpid(), number), 3)
            save(run, 1)
        assert stop.requested == number.name
        assert holds(load(run)[0], 1)


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_sigterm_while_the_data_is_prepared_leaves_nothing(tmp_path, command, monkeypatch, capsys):
    def unhandled(*arguments):
        raise AssertionError("by default, SIGTERM would end the process")

    def learn(*arguments):
        assert list(cache.glob(".tmp-*"))
        signal.raise_signal(signal.SIGTERM)

    cache = tmp_path / ".cache"
    monkeypatch.setattr(prepare, "_learn", learn)
    toy_corpus(tmp_path, {"train": 40, "dev": 4, "test": 4})
    with handle_signals(unhandled, signal.SIGTERM):
        main = importlib.import_module(f"nmt.cli.{command}").main
        assert main([str(toy_recipe(tmp_path))]) == 143
    assert f"nmt-{command}: terminated" in capsys.readouterr().err
    assert list(cache.iterdir()) == []
    assert not (tmp_path / "run").exists()


def test_a_second_ctrl_c_at_every_step_of_a_save(tmp_path):
    with TrainingFolder(tmp_path / "run", RECIPE) as run:
        save(run, 1, best=1)
        steps = count_steps(run, 2)
        for at in range(1, steps + 1):
            before, update = load(run)[0].state.update, at + 2
            with pytest.MonkeyPatch.context() as patch, stop_signals():
                os.kill(os.getpid(), signal.SIGINT)
                Steps(patch, lambda: os.kill(os.getpid(), signal.SIGINT), at)
                with pytest.raises(KeyboardInterrupt):
                    save(run, update, best=update)
            found = load(run)[0]
            assert found.state.update in (before, update)
            assert holds(found, found.state.update)
