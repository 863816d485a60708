"""A frozen process is noticed; one that works, ends or was suspended with the machine is not."""

from __future__ import annotations

import threading
import time

import pytest

from nmt.runtime.distributed import Heartbeat

dist = pytest.importorskip("torch.distributed")

SILENCE = 1.0


class Frozen(Heartbeat):
    """A process whose threads stop after the first sign of life."""

    def _watch(self) -> None:
        self._store.set(f"nmt/heartbeat/{self._rank}", "1")


@pytest.fixture
def connect():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return lambda: dist.TCPStore("127.0.0.1", server.port, is_master=False)


def test_a_frozen_process_is_named(connect):
    silent: list[int] = []
    noticed = threading.Event()

    def on_silence(rank: int) -> None:
        silent.append(rank)
        noticed.set()

    def process(rank: int, kind: type[Heartbeat] = Heartbeat) -> Heartbeat:
        return kind(connect(), rank, 3, on_silence, SILENCE / 20, SILENCE)

    with process(0), process(1), process(2, Frozen):
        assert noticed.wait(20 * SILENCE)
    assert set(silent) == {2}


def test_a_process_that_ends_is_not_frozen(connect):
    silent: list[int] = []
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
