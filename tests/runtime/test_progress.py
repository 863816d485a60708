"""Bars of long steps: on a terminal they have the time left, elsewhere there is nothing."""

from __future__ import annotations

import io
import re
import time

import pytest

from nmt.runtime import progress
from nmt.runtime.progress import TerminalBar, counted, progress_bar
from nmt.scoring import metrics
from nmt.scoring.metrics import paired_bootstrap, score
from tests.children import kill, start_holding


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    return stream


def test_a_terminal_gets_the_parts_and_the_time_left(monkeypatch):
    stream = terminal(monkeypatch)
    for _ in counted(range(50), "reading", "pairs", 50):
        time.sleep(0.005)
    lines = stream.getvalue().split("\r")
    bar = re.compile(r"reading: +\d+%\|.*/50 \[\d\d:\d\d<\d\d:\d\d, .* pairs/s")
    assert any(bar.match(line) for line in lines)
    assert lines[-1].strip() == ""  # the bar is removed


def test_a_bar_moves_on_when_the_wall_clock_is_set_back(monkeypatch):
    clock = [1e6]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    stream = terminal(monkeypatch)
    with TerminalBar(total=9, mininterval=0.0, miniters=0) as bar:
        clock[0] -= 86_400
        bar.update()
        assert re.search(r"1/9 \[00:\d\d<0\d:\d\d, ", stream.getvalue())


def test_a_step_without_parts_shows_the_time_it_takes(monkeypatch):
    monkeypatch.setattr(progress, "REDRAW", 0.01)
    stream = terminal(monkeypatch)
    with progress_bar("learning", slow=True):
        time.sleep(0.15)
    assert stream.getvalue().count("learning  00:00") > 3


def test_a_killed_fork_does_not_keep_the_lock_of_the_bars():
    kill(start_holding(lambda: TerminalBar.get_lock().acquire()))
    lock = TerminalBar.get_lock()
    assert lock.acquire(False)
    lock.release()


def test_a_hidden_bar_and_a_pipe_get_nothing(monkeypatch, capsys):
    for slow in (False, True):
        assert list(counted(range(3), "reading", "pairs", 3, slow=slow)) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    stream = terminal(monkeypatch)
    assert list(counted(range(3), "reading", "pairs", show=False)) == [0, 1, 2]
    assert stream.getvalue() == ""


@pytest.mark.parametrize("count", [1, 3])
def test_scoring_counts_to_the_end(monkeypatch, count):
    ended = []

    def close(bar: TerminalBar, close=TerminalBar.close) -> None:
        if not bar.disable:  # closed already
            ended.append((bar.n, bar.total))
        close(bar)

    refs = ["the cat sat on the mat", "a dog", "it rained all day"]
    systems = {f"system {i}": ["the cat", "a", str(i)] for i in range(count)}
    names = ["bleu", "chrf", "ter"]

    def scores(progress: bool) -> object:
        if count == 1:
            return score(systems["system 0"], refs, names, "en", 20, progress=progress)
        return paired_bootstrap(systems, refs, names, "en", 20, progress=progress)

    silent = scores(progress=False)
    stream = terminal(monkeypatch)
    assert scores(progress=True) == silent
    assert stream.getvalue() == ""  # it takes less than two seconds
    monkeypatch.setattr(metrics, "DELAY", 0.0)
    monkeypatch.setattr(TerminalBar, "close", close)
    assert scores(progress=True) == silent
    steps = 3 + 1 + 20 if count == 1 else 3 * (3 + 1) + 20 + 2 * 2 * 20
    assert ended == [(steps, steps)] * len(names)
    assert re.search(r"computing ter: +\d+%\|.*\| 00:00<[\d:?]+\r", stream.getvalue())


def test_a_delayed_bar_appears_when_the_step_takes_longer(monkeypatch):
    stream = terminal(monkeypatch)
    with progress_bar("computing", total=90, delay=0.2) as bar:
        for _ in range(45):
            bar.update()
        assert stream.getvalue() == ""
        time.sleep(0.2)
        for _ in range(45):
            bar.update()
    assert re.search(r"computing: +\d+%\|.*\| 00:00<00:0\d\r", stream.getvalue())
    assert stream.getvalue().split("\r")[-1].strip() == ""  # the bar is removed


@pytest.mark.parametrize("size", [(80, 24), (0, 0)])  # columns and rows; 0 = not known
def test_a_delayed_bar_appears_while_a_part_is_slow(monkeypatch, size):
    monkeypatch.setattr(progress, "REDRAW", 0.01)
    columns, rows = (number - 1 for number in size)
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda stream: (columns, rows))
    stream = terminal(monkeypatch)
    for seconds, shown in ((0.0, False), (0.4, True)):
        with progress_bar("computing", total=2, delay=0.2, slow=True):
            time.sleep(seconds)
        assert (stream.getvalue().count("computing:   0%|") > 2) == shown
    assert stream.getvalue().split("\r")[-1].strip() == ""  # the bar is removed
