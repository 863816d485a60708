"""Notice that a process of a training hangs, where the others would wait for it for hours.

Each process increments a number in the store of torchrun and reads those of the others. A thread
does both, so that a long validation or a slow update is not taken for a hang.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from nmt.errors import RunError

if TYPE_CHECKING:
    from torch.distributed import Store

INTERVAL = 10.0  # seconds between two signs of life
SILENCE = 600.0  # seconds without one after which a process is taken for frozen
ENDED = "ended"


class Heartbeat:
    """Signs of life of the processes of a training; as a context manager, inside the block.

    Args:
        store: that all processes share; this object uses it alone.
        rank, size: of this process, and their number.
        on_silence: receives the rank of a process that has been silent for ``SILENCE`` seconds.
        interval, silence: in seconds.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        on_silence: Callable[[int], None],
        interval: float = INTERVAL,
        silence: float = SILENCE,
    ) -> None:
        self._store, self._rank, self._on_silence = store, rank, on_silence
        self._interval, self._silence = interval, silence
        self._others = [other for other in range(size) if other != rank]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            self._watch()
        except RuntimeError:  # torchrun ends all processes once its store is gone
            return

    def _watch(self) -> None:
        last: dict[int, bytes] = {}
        heard = dict.fromkeys(self._others, time.monotonic())
        beats, woken = 0, time.monotonic()
        while not self._end.is_set():
            beats += 1
            self._store.set(_key(self._rank), str(beats))
            now = time.monotonic()
            if now - woken > self._silence / 2:  # this process, or the machine, was suspended
                heard = dict.fromkeys(self._others, now)
            woken = now
            for other in self._others:
                sign = self._store.get(_key(other)) if self._store.check([_key(other)]) else b""
                if sign != last.get(other) or sign == ENDED.encode():
                    last[other], heard[other] = sign, now
                elif now - heard[other] > self._silence:
                    self._on_silence(other)
                    return
            self._end.wait(self._interval)
        self._store.set(_key(self._rank), ENDED)


def end_process(rank: int) -> None:
    """End this process, because another one is frozen and a collective operation cannot end."""
    error = RunError(
        f"process {rank} of this training has not answered for {SILENCE / 60:.0f} minutes",
        fix="find out why it hangs (its machine, its disk, a stopped process), then continue from "
        "the last checkpoint with --resume",
    )
    print(f"nmt-train: {error}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)


def _key(rank: int) -> str:
    return f"nmt/heartbeat/{rank}"
