"""Measuring how fast a machine trains, with a clock that the test moves."""

from __future__ import annotations

import itertools
import os
import time

import pytest
import torch

from nmt.apps.suggest import speed as module
from nmt.apps.suggest.speed import Setting, busy_note, measure_speeds, tokens_per_second
from nmt.config.load import load_recipe
from nmt.data.prepare import prepare
from nmt.training.tasks import make_task

CPU = torch.device("cpu")


def ticking():
    """Return a clock that advances by a second at each look."""
    count = itertools.count()
    return lambda: float(next(count))


@pytest.mark.parametrize(("seconds", "counted"), [(3.0, 3), (0.5, 1)])
def test_tokens_of_the_counted_updates_are_divided_by_their_time(start, recipe, seconds, counted):
    """The clock is read at the start and after each update: three updates take three seconds."""
    resolved = load_recipe(recipe)
    task = make_task(resolved, prepare(resolved), CPU, "fp32")
    updates = start().updates()
    tokens = [next(updates).tokens for _ in range(1 + counted)]
    assert tokens_per_second(task, seconds, ticking()) == sum(tokens[1:]) / counted


def test_in_bf16_a_cpu_is_timed_on_updates_that_it_has_seen(start, recipe, monkeypatch):
    """Three updates in the first three seconds; the timed ones are the same."""
    resolved = load_recipe(recipe)
    task = make_task(resolved, prepare(resolved), CPU, "bf16")
    seen = []
    update = module.Trainer.update
    monkeypatch.setattr(
        module.Trainer, "update", lambda trainer, u: (seen.append(u), update(trainer, u))
    )
    tokens_per_second(task, 3.0, ticking())
    assert len(seen) == 6
    assert [id(u) for u in seen[3:]] == [id(u) for u in seen[:3]]
    assert all(planned.batch.bucket for u in seen for planned in u.own)


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(
    ("by_threads", "measured"),
    [({4: 9.0, 2: 5.0, 1: 7.0}, [4, 2]), ({4: 5.0, 2: 7.0, 1: 9.0}, [4, 2, 1])],
)
def test_threads_are_halved_as_long_as_this_is_faster(recipe, monkeypatch, by_threads, measured):
    monkeypatch.setattr(module, "fast_precisions", lambda device: ["fp32", "bf16"])

    def speed(task, seconds, clock):
        return by_threads[torch.get_num_threads()] * (2 if task.precision == "bf16" else 1)

    monkeypatch.setattr(module, "tokens_per_second", speed)
    resolved = load_recipe(recipe)
    found = dict(measure_speeds(resolved, prepare(resolved), CPU, 1.0))
    assert found == {
        Setting(precision, threads): by_threads[threads] * factor
        for precision, factor in (("fp32", 1), ("bf16", 2))
        for threads in measured
    }
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_threads_are_restored_after_an_error(recipe, monkeypatch):
    def fail(task, seconds, clock):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "tokens_per_second", fail)
    torch.set_num_threads(3)
    resolved = load_recipe(recipe)
    with pytest.raises(RuntimeError):
        list(measure_speeds(resolved, prepare(resolved), CPU, 1.0))
    assert torch.get_num_threads() == 3


def test_measuring_writes_no_files(recipe, tmp_path, monkeypatch):
    resolved = load_recipe(recipe, [f"out={tmp_path / 'out' / 'run'}"])
    prepared = prepare(resolved)
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    found = dict(measure_speeds(resolved, prepared, CPU, seconds=0.0))
    assert min(found.values()) > 0
    assert os.listdir(folder) == []
    assert not (tmp_path / "out" / "run").exists()


@pytest.mark.parametrize(("wall", "used", "busy"), [(10.0, 9.0, False), (10.0, 2.0, True)])
def test_a_busy_machine_gets_a_note(wall, used, busy):
    note = busy_note(wall, used)
    assert bool(note) == busy
    assert ("20%" in note) == busy


@pytest.mark.slow
def test_other_programs_do_not_change_the_speed(recipe, monkeypatch):
    """A sleep in each update is time on the clock that another program takes."""
    resolved = load_recipe(recipe)
    prepared = prepare(resolved)
    update = module.Trainer.update

    def slow(trainer, batches):
        time.sleep(0.05)
        update(trainer, batches)

    def speed() -> float:
        return max(speed for _, speed in measure_speeds(resolved, prepared, CPU, 0.3))

    alone = speed()
    monkeypatch.setattr(module.Trainer, "update", slow)
    assert speed() > alone / 3  # by the clock it is under a tenth


def test_names_of_settings():
    names = [str(Setting(*parts)) for parts in (("fp32", 1), ("bf16", 8), ("fp16", 0))]
    assert names == ["fp32, 1 thread", "bf16, 8 threads", "fp16"]


@pytest.mark.parametrize(("auto", "expected"), [("bf16", ["fp32", "bf16"]), ("fp32", ["fp32"])])
def test_precisions_are_fp32_and_what_auto_takes(auto, expected, monkeypatch):
    monkeypatch.setattr(module, "resolve_precision", lambda name, device: auto)
    assert module.fast_precisions(CPU) == expected
