"""What a training shows while it runs, and how long it says that it takes."""

from __future__ import annotations

import io
import math
import re
import sys
import time
from collections.abc import Callable

import pytest

from nmt.config.load import load_recipe
from nmt.store.checkpoint import TrainState
from nmt.training.progress import (
    HALF_HOUR,
    MINUTE,
    LiveLine,
    Progress,
    Validation,
    _bar,
)
from tests.training.helpers import CountReads

SPAN = ["train.validate_every=100", "train.max_validations=10"]  # 1,000 updates


class Clock:
    def __init__(self) -> None:
        self.seconds = 50.0

    def __call__(self) -> float:
        return self.seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def make(recipe) -> Callable[..., tuple[Progress, Clock]]:
    """Return a function that makes the progress of a state, from overrides of the recipe."""

    def progress(state: TrainState, *overrides: str, has_test: bool = False):
        clock = Clock()
        return Progress(load_recipe(recipe, [*SPAN, *overrides]), state, has_test, clock), clock

    return progress


def step(progress: Progress, clock: Clock, seconds: float, count: int, tokens: int = 10) -> None:
    for _ in range(count):
        clock.seconds += seconds
        progress.pace.step(tokens)


def validate(progress: Progress, clock: Clock, seconds: float) -> None:
    with progress.validation():
        clock.seconds += seconds


def ended() -> TrainState:
    return TrainState(update=1000, history=[(100 * i, 1.0) for i in range(1, 11)])


def test_the_time_left_includes_validations_and_the_test_set_once_one_is_timed(make):
    progress, clock = make(TrainState(update=150, history=[(100, 1.0)]), has_test=True)
    step(progress, clock, 0.5, 10)
    assert progress.seconds_left() == 850 * 0.5
    assert progress.validation_seconds is None
    validate(progress, clock, 20.0)
    assert progress.seconds_left() == 850 * 0.5 + (9 + 1) * 20
    for seconds in (10.0, 10.0, 13.0):  # only the last three count
        validate(progress, clock, seconds)
    assert progress.validation_seconds == 11


def test_the_time_left_ends_with_the_time_limit_and_the_schedule(make):
    limited, clock = make(TrainState(update=0, seconds=300.0), "time_limit=0.1")
    step(limited, clock, 10.0, 3)
    assert limited.seconds_left() == 60
    linear = ["schedule.kind=linear", "schedule.lr=0.01", "schedule.warmup_updates=5"]
    scheduled, clock = make(TrainState(), *linear, "schedule.total_updates=250")
    step(scheduled, clock, 1.0, 3)
    validate(scheduled, clock, 1.0)
    assert scheduled.seconds_left() == 250 + 3  # at 100, 200 and 250


@pytest.mark.parametrize("average", [0, 2])
def test_after_the_updates_the_average_and_the_test_set_are_scored(make, average):
    progress, clock = make(ended(), f"train.average={average}", has_test=True)
    validate(progress, clock, 10.0)
    assert progress.seconds_left() == (20 if average else 10)


def test_before_two_updates_are_timed_the_time_left_is_of_the_whole_run(make):
    progress, clock = make(TrainState(update=10, seconds=20.0))
    step(progress, clock, 30.0, 1)  # compiles
    assert progress.seconds_left() == 990 * 2


def test_the_time_left_is_not_negative_during_a_validation(make):
    state = TrainState(update=150, seconds=3597.0, history=[(100, 1.0)])
    progress, clock = make(state, "time_limit=1")
    validate(progress, clock, 60.0)
    step(progress, clock, 1.0, 10)
    with progress.validation():
        clock.seconds += 30
        assert "0:00 left" in progress.status()


def test_a_score_that_is_not_a_number_has_no_bar():
    assert [_bar(share) for share in (math.nan, 0.0, 2.0)] == ["", "", _bar(1.0)]


def test_the_pace_of_slow_updates(make):
    """Each takes longer than the minute that a speed is measured over."""
    progress, clock = make(TrainState())
    step(progress, clock, 80.0, 5, tokens=40)
    assert progress.pace.per_second(MINUTE) == (1 / 80, 0.5)


def test_the_pace_is_of_recent_updates_without_the_first_one_and_validations(make):
    progress, clock = make(TrainState())
    step(progress, clock, 30.0, 1)  # compiles
    assert progress.pace.per_second(MINUTE) is None
    step(progress, clock, 0.5, 4)
    assert progress.pace.per_second(MINUTE) == (2, 20)
    validate(progress, clock, 100.0)
    step(progress, clock, 0.5, 4)
    assert progress.pace.per_second(MINUTE) == (2, 20)
    step(progress, clock, 1.0, 200)  # slower now
    assert progress.pace.per_second(MINUTE) == (1, 10)
    assert progress.pace.per_second(HALF_HOUR) == (208 / 204, 2080 / 204)
    step(progress, clock, 1.0, 1800)
    assert progress.pace.per_second(HALF_HOUR) == (1, 10)


def test_time_that_a_gpu_takes_for_queued_updates_counts(make):
    progress, clock = make(TrainState())
    step(progress, clock, 0.0, 5)  # queued at once
    clock.seconds += 8
    progress.pace.synchronized()
    assert progress.pace.per_second(MINUTE) == (4 / 8, 40 / 8)


def test_nothing_is_promised_before_it_is_measured(make):
    """First no time left, then that of the updates with a plus, then all of it."""
    state = TrainState()
    progress, clock = make(state)
    assert progress.status() == "0/1,000"
    for _ in range(10):
        clock.seconds += 1
        state.update += 1
        progress.pace.step(500)
    assert progress.status() == "10/1,000  16:30+ left  1 updates/s  500 tok/s"
    progress.loss = 3.14159
    with progress.validation():
        clock.seconds += 60
        assert progress.status().startswith("10/1,000  validating 1:00  16:30+ left")
    state.history, state.best_update = [(10, 12.5)], 10
    assert progress.status() == (
        "10/1,000  25:30 left  1 updates/s  500 tok/s  loss 3.14  best bleu 12.50"
    )
    with progress.validation():
        clock.seconds += 15
        assert "validating 0:15  25:15 left" in progress.status()
    with progress.ending("scoring test"):
        assert progress.status() == "10/1,000  scoring test 0:00  loss 3.14  best bleu 12.50"


def test_a_validation_that_a_stop_ends_is_not_a_measurement(recipe):
    progress = Progress(load_recipe(recipe), TrainState(), has_test=False)
    with pytest.raises(KeyboardInterrupt), progress.validation():
        raise KeyboardInterrupt
    assert progress.validation_seconds is None


def test_a_terminal_shows_one_line_and_no_lines_of_updates(start, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    trainer = start()
    trainer.view = LiveLine()
    trainer.view.begin(trainer.progress)
    trainer.run()
    trainer.view.end()
    shown = terminal.getvalue()
    assert "0/12" in shown
    assert "validating" in shown
    printed = [line.rpartition("\r")[2] for line in shown.split("\n")]
    assert [line[:5] for line in printed if line.strip()] == ["dev  "] * 3
    assert trainer.run_folder.log_file.read_text().count(" update ") == 12 + 3  # all lines


def test_a_terminal_that_does_not_know_its_size_shows_the_line(recipe, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda file: (-1, -1))
    view = LiveLine()
    view.begin(Progress(load_recipe(recipe), TrainState(update=3), has_test=False))
    time.sleep(0.21)  # the line is drawn every fifth of a second
    view.update()
    view.end()
    assert "| 3/12" in terminal.getvalue()


def test_without_a_terminal_there_are_plain_lines_only(start, capsys):
    trainer = start()
    trainer.view = LiveLine()
    trainer.view.begin(trainer.progress)
    trainer.run()
    trainer.view.end()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines].count("update") == 12
    assert re.search(r"left: at most \d+:\d\d, plus validations$", lines[0])
    assert re.search(r"left: at most \d+:\d\d$", lines[-2])


def test_the_live_line_reads_nothing_from_the_device(start, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    counts = []
    for view in (LiveLine(quiet=True), LiveLine()):
        trainer = start("train.log_every=100")
        trainer.view = view
        view.begin(trainer.progress)
        updates = trainer.updates()
        trainer.update(next(updates))
        with CountReads() as reads:
            for _ in range(3):
                trainer.update(next(updates))
                view.update()
                trainer.progress.status()
        view.end()
        counts.append(reads.count)
    assert counts[0] == counts[1]


def test_each_validation_is_reported_when_its_checkpoint_is_saved(start):
    found = []

    def report(validation: Validation) -> None:
        found.append(validation)
        assert trainer.run_folder.best() is not None

    trainer = start()
    trainer.on_validation = report
    trainer.run()
    assert (found[0].update, found[0].best) == (4, True)
    assert [v.scores["bleu"] for v in found] == [score for _, score in trainer.state.history]
    assert {"ppl", "smoothed_ppl", "tokenized_bleu"} <= found[0].scores.keys()
