"""SIGTERM and the first Ctrl-C ask a command to save and end; a second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Whether a signal asked to stop.

    Attributes:
        requested: name of the first such signal, or None.
    """

    requested: str | None = None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Yield a StopRequest that SIGTERM and Ctrl-C set inside the block instead of killing.

    Outside of the main thread Python cannot install handlers, so nothing is ever requested.
    """
    stop = StopRequest()
    interrupted = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if number == signal.SIGINT and interrupted:
            raise KeyboardInterrupt
        interrupted = interrupted or number == signal.SIGINT
        stop.requested = stop.requested or signal.Signals(number).name

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            # None: the handler was installed outside of Python and cannot be put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
