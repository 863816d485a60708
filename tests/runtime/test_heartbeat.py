"""A frozen process is noticed; one that works, ends or was suspended with the machine is not."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from nmt.errors import UserError
from nmt.runtime.distributed import Heartbeat, PeerEnded

dist = pytest.importorskip("torch.distributed")

SILENCE = 1.0


class Frozen(Heartbeat):
    """A process whose threads stop after the first sign of life."""

    def _watch(self) -> None:
        self._beat("1")


@pytest.fixture
def connect():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return lambda: dist.TCPStore("127.0.0.1", server.port, is_master=False)


def test_a_frozen_process_is_named(connect):
    silent: list[str | None] = []
    noticed = threading.Event()

    def on_silence(error: PeerEnded) -> None:
        silent.append(error.at)
        noticed.set()

    def process(rank: int, kind: type[Heartbeat] = Heartbeat) -> Heartbeat:
        return kind(connect(), rank, 3, on_silence, SILENCE / 20, SILENCE)

    with process(0), process(1), process(2, Frozen):
        assert noticed.wait(20 * SILENCE)
    assert all(at is not None and at.startswith("process 2 of 3 ") for at in silent)


def test_a_process_that_ends_is_not_frozen(connect):
    silent: list[PeerEnded] = []
    with Heartbeat(connect(), 0, 2, silent.append, SILENCE / 20, SILENCE):
        with Heartbeat(connect(), 1, 2, silent.append, SILENCE / 20, SILENCE):
            time.sleep(SILENCE / 2)
        time.sleep(2 * SILENCE)
    assert silent == []


def test_a_store_that_is_gone_ends_the_thread(connect):
    class Gone:
        def set(self, key: str, value: str) -> None:
            raise RuntimeError("connection reset")

    heartbeat = Heartbeat(Gone(), 0, 2, pytest.fail)  # type: ignore[arg-type]
    with heartbeat:
        heartbeat._thread.join(10)
    assert not heartbeat._thread.is_alive()


def beat(connect, kind: type[Heartbeat], rank: int) -> Heartbeat:
    return kind(connect(), rank, 3, pytest.fail, SILENCE / 20, 60 * SILENCE, patience=SILENCE)


def test_a_process_that_was_killed_is_named_by_the_first_that_is_left(connect):
    process = partial(beat, connect)
    with process(Heartbeat, 1) as first, process(Heartbeat, 2) as other, process(Frozen, 0) as dead:
        dead._thread.join()
        dead.phase = "update 7"
        for number in range(5):
            dead.note(f"line {number}")
        error = first.find_lost()
        assert isinstance(other.find_lost(), SystemExit)
    assert isinstance(error, PeerEnded)
    assert error.exit_code == 3
    assert (error.at or "").startswith("process 0 of 3 ")
    assert "update 7" in error.what
    assert error.what.splitlines()[1:] == ["  line 2", "  line 3", "  line 4"]


def test_a_process_that_failed_is_named_at_once(connect):
    process = partial(beat, connect)
    with process(Heartbeat, 0) as first, process(Heartbeat, 2):
        with pytest.raises(UserError), process(Heartbeat, 1):
            raise UserError("too long", at="train.gl:3")
        error = first.find_lost()
    assert isinstance(error, PeerEnded)
    assert (error.at or "").startswith("process 1 of 3 ")
    assert "train.gl:3: too long" in error.what


def test_processes_that_work_or_have_ended_are_not_lost(connect):
    process = partial(beat, connect)
    with process(Heartbeat, 0) as first, process(Heartbeat, 2) as other:
        with process(Heartbeat, 1):
            assert other.find_lost() is None
        assert not other.main_has_ended
        assert first.find_lost() is None
