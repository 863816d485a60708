"""The queue in front of a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.apps.serve import batcher as batcher_module
from nmt.apps.serve.batcher import BATCH_COST, Batcher, shares

SECONDS = 10


class Model:
    """Turns lines into capitals, when it is allowed to; asks whether to stop while it waits."""

    def __init__(self, batch: int = 4, queue: int = 20) -> None:
        self.batches: list[list[str]] = []
        self.firsts: list[int] = []
        self.free = threading.Event()
        self.entered = threading.Event()
        self.batcher: Batcher = Batcher(self.translate, batch, queue)

    def translate(
        self, lines: list[str], options: dict[str, Any], first: int, stop: Callable[[], None]
    ) -> list[str]:
        self.batches.append(lines)
        self.firsts.append(first)
        self.entered.set()
        for _ in range(SECONDS * 1000):
            stop()
            if self.free.wait(0.001) or "short" in lines:
                break
        else:
            raise TimeoutError
        if "bad" in lines:
            raise ValueError("a bad line")
        return [line.upper() for line in lines]

    def submit(
        self,
        lines: list[str],
        options: dict[str, Any] | None = None,
        together: bool = True,
        cost: float = 1.0,
    ) -> Future[list[str]]:
        return self.batcher.submit(lines, [cost] * len(lines), options or {}, together)

    def occupy(self) -> None:
        """Return when the model works on a first job."""
        self.first = self.submit(["first"])
        assert self.entered.wait(SECONDS)


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    model.occupy()
    yield model
    model.free.set()
    model.batcher.close()


def test_jobs_of_the_same_options_share_a_batch_and_get_their_own_results(model):
    futures = [
        model.submit([name], {"beam": beam}) for name, beam in zip("abc", (2, 1, 2), strict=True)
    ]
    assert model.batcher.waiting == 3
    model.free.set()
    assert [future.result(SECONDS) for future in futures] == [["A"], ["B"], ["C"]]
    assert model.batches == [["first"], ["a", "c"], ["b"]]


def test_a_long_job_does_not_block_a_short_one(model: Model) -> None:
    long = model.submit([f"l{n}" for n in range(9)], {})
    short = model.submit(["s"], {})
    model.free.set()
    assert short.result(SECONDS) == ["S"]
    assert long.result(SECONDS) == [f"L{n}" for n in range(9)]
    assert model.batches[1:] == [
        ["l0", "l1", "l2", "s"], ["l3", "l4", "l5", "l6"], ["l7", "l8"],
    ]  # fmt: skip


def test_samples_are_alone_and_keep_their_numbers(model: Model) -> None:
    lines = [f"l{n}" for n in range(6)]
    sampled = model.submit(lines, {"sample": True}, together=False)
    other = model.submit(["o"], {"sample": True}, together=False)
    model.free.set()
    assert len(sampled.result(SECONDS)) == 6
    assert other.result(SECONDS) == ["O"]
    assert model.batches[1:] == [lines[:4], ["o"], lines[4:]]
    assert model.firsts[1:] == [0, 0, 4]


def test_an_error_fails_only_its_own_job_and_a_cancelled_job_is_not_translated(model):
    good, bad, gone = (model.submit([name], {}) for name in ("good", "bad", "gone"))
    gone.cancel()
    assert model.batcher.waiting == 2
    model.free.set()
    assert good.result(SECONDS) == ["GOOD"]
    with pytest.raises(ValueError, match="a bad line"):
        bad.result(SECONDS)
    assert not any("gone" in batch for batch in model.batches)


def test_a_batch_that_nobody_waits_for_ends_at_once(model: Model) -> None:
    """As after a timeout, or when the client disconnects."""
    after = model.submit(["short"])
    model.first.cancel()
    assert after.result(SECONDS) == ["SHORT"]  # the model is not free, so the first batch ended


def test_short_lines_interrupt_a_long_batch_for_at_most_half_of_the_time(model, monkeypatch):
    monkeypatch.setattr(batcher_module, "UNINTERRUPTED", 0.05)
    model.first.cancel()
    huge = model.submit(["huge"], cost=10 * BATCH_COST)
    other = model.submit(["other"], cost=10 * BATCH_COST)
    while model.batches[-1] != ["huge"]:
        time.sleep(0.001)
    started = time.monotonic()
    for _ in range(4):
        assert model.submit(["short"]).result(SECONDS) == ["SHORT"]
    assert time.monotonic() - started > 3 * 0.05
    assert not huge.done()
    assert model.batches[2:] == [["short"]] * 4  # another long line waits for its turn
    model.free.set()
    assert huge.result(SECONDS) == ["HUGE"]
    assert other.result(SECONDS) == ["OTHER"]


def test_an_error_of_an_interruption_is_its_own(model, monkeypatch):
    monkeypatch.setattr(batcher_module, "UNINTERRUPTED", 0.0)
    with pytest.raises(ValueError, match="a bad line"):
        model.submit(["short", "bad"]).result(SECONDS)
    model.free.set()
    assert model.first.result(SECONDS) == ["FIRST"]


def test_abort_answers_what_waits_and_what_is_computed(model: Model) -> None:
    waits = model.submit(["waits"])
    model.batcher.abort(KeyError("over"))
    for future in (model.first, waits):
        with pytest.raises(KeyError, match="over"):
            future.result(SECONDS)


def test_close_ends_the_thread_and_answers_every_job():
    model = Model()
    assert model.submit([]).result(0) == []
    model.occupy()
    future = model.submit(["x"] * 9)
    started = time.monotonic()
    model.batcher.close()
    assert time.monotonic() - started < SECONDS / 2
    assert future.exception(SECONDS) is not None
    assert model.batches == [["first"]]


COSTS = st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=20), min_size=1, max_size=10)


@given(COSTS, st.integers(1, 500), st.integers(1, 50))
def test_shares_are_equal_and_within_the_limits(costs, most_cost, most_lines):
    counts = shares(costs, most_cost, most_lines)
    assert counts[0] >= 1
    assert sum(counts) <= most_lines
    jobs = list(zip(costs, counts, strict=True))
    taken = [line for of_job, count in jobs for line in of_job[:count]]
    assert sum(taken) <= most_cost or sum(line > 0 for line in taken) == 1
    if sum(counts) < most_lines:  # what is left does not fit
        rest = [of_job[count] for of_job, count in jobs if count < len(of_job)]
        assert all(sum(taken) + line > most_cost for line in rest)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([[100.0] * 9, [1.0] * 9], [1, 9]),  # a job with large lines gets fewer
        ([[1.0] * 9] * 3, [3, 3, 3]),
        ([[500.0] * 9, [1.0]], [1, 0]),  # a line that is too large for a batch is alone
        ([[1.0], [500.0] * 9], [1, 0]),
    ],
)
def test_shares_follow_costs(costs: list[list[float]], expected: list[int]) -> None:
    assert shares(costs, 110, 10 if expected != [3, 3, 3] else 9) == expected
