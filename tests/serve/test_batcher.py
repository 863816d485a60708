"""The queue in front of a model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.serve.batcher import Batcher, shares
from nmt.serve.limits import Refused

SECONDS = 10


class Model:
    """Turns lines into capitals, when it is allowed to."""

    def __init__(self, batch: int = 4, queue: int = 20) -> None:
        self.batches: list[list[str]] = []
        self.free = threading.Event()
        self.entered = threading.Event()
        self.batcher: Batcher[str] = Batcher(self.translate, batch, queue)

    def translate(self, lines: list[str], options: dict[str, Any]) -> list[str]:
        self.batches.append(lines)
        self.entered.set()
        assert self.free.wait(SECONDS)
        if "bad" in lines:
            raise ValueError("a bad line")
        return [line.upper() for line in lines]

    def occupy(self) -> None:
        """Return when the model works on a first job."""
        self.first = self.batcher.submit(["first"], {})
        assert self.entered.wait(SECONDS)


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    model.occupy()
    yield model
    model.free.set()
    model.batcher.close()


def test_a_job_that_is_alone_starts_at_once(model: Model) -> None:
    assert model.batches == [["first"]]


def test_jobs_that_wait_share_a_batch_and_get_their_own_results(model: Model) -> None:
    futures = [model.batcher.submit([name], {"beam": 2}) for name in ("a", "b", "c")]
    assert model.batcher.waiting == 3
    model.free.set()
    assert [future.result(SECONDS) for future in futures] == [["A"], ["B"], ["C"]]
    assert model.batches == [["first"], ["a", "b", "c"]]


def test_other_options_make_another_batch(model: Model) -> None:
    futures = [model.batcher.submit(["x"], {"beam": beam}) for beam in (1, 2, 1)]
    model.free.set()
    assert [future.result(SECONDS) for future in futures] == [["X"]] * 3
    assert model.batches[1:] == [["x", "x"], ["x"]]


def test_a_long_job_does_not_block_a_short_one(model: Model) -> None:
    long = model.batcher.submit([f"l{n}" for n in range(9)], {})
    short = model.batcher.submit(["s"], {})
    model.free.set()
    assert short.result(SECONDS) == ["S"]
    assert long.result(SECONDS) == [f"L{n}" for n in range(9)]
    assert model.batches[1:] == [
        ["l0", "l1", "l2", "s"], ["l3", "l4", "l5", "l6"], ["l7", "l8"],
    ]  # fmt: skip


def test_samples_stay_together_and_alone(model: Model) -> None:
    lines = [f"l{n}" for n in range(6)]
    sampled = model.batcher.submit(lines, {"sample": True}, together=False)
    other = model.batcher.submit(["o"], {"sample": True}, together=False)
    model.free.set()
    assert len(sampled.result(SECONDS)) == 6
    assert other.result(SECONDS) == ["O"]
    assert model.batches[1:] == [lines, ["o"]]


def test_an_error_fails_only_its_own_job(model: Model) -> None:
    good, bad = model.batcher.submit(["good"], {}), model.batcher.submit(["bad"], {})
    model.free.set()
    assert good.result(SECONDS) == ["GOOD"]
    with pytest.raises(ValueError, match="a bad line"):
        bad.result(SECONDS)


def test_a_cancelled_job_is_not_translated(model: Model) -> None:
    gone, stays = model.batcher.submit(["gone"], {}), model.batcher.submit(["stays"], {})
    gone.cancel()
    assert model.batcher.waiting == 1
    model.free.set()
    assert stays.result(SECONDS) == ["STAYS"]
    assert model.batches[1:] == [["stays"]]


def test_a_full_queue_refuses_a_job(model: Model) -> None:
    model.batcher.submit(["x"] * 15, {})
    with pytest.raises(Refused, match="15 lines in the queue of this model, at most 20") as refused:
        model.batcher.submit(["x"] * 6, {})
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    model.batcher.submit(["x"] * 5, {})


def test_close_finishes_what_waits() -> None:
    model = Model()
    model.occupy()
    future = model.batcher.submit(["x"] * 9, {})
    model.free.set()
    model.batcher.close()
    assert future.result(0) == ["X"] * 9


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(20, 100))
def test_shares_are_equal_and_complete(counts: list[int], total: int) -> None:
    found = shares(counts, total)
    assert sum(found) == min(total, sum(counts))
    assert all(1 <= share <= count for share, count in zip(found, counts, strict=True))
    cut = [share for share, count in zip(found, counts, strict=True) if share < count]
    assert not cut or (max(cut) - min(cut) <= 1 and max(found) <= min(cut) + 1)
