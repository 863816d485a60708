"""Handle the signals that end a command: SIGTERM, SIGHUP and Ctrl-C.

The system sends SIGHUP when a terminal or an ssh connection closes. A command that nohup started
ignores it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from nmt.errors import Terminated

SIGHUP = getattr(signal, "SIGHUP", None)  # Windows has none
# signals other than Ctrl-C that ask a command to end
TERMINATING = tuple(filter(None, (signal.SIGTERM, SIGHUP)))
PARENT = "NMT_PARENT_PID"  # environment variable with the process to end with
PR_SET_PDEATHSIG = 1  # of linux/prctl.h


@dataclass
class StopRequest:
    """The name of the first signal that asked to stop, or None."""

    requested: str | None = None


@contextmanager
def handle_signals(
    handler: Callable[[int, FrameType | None], None], *numbers: int
) -> Iterator[None]:
    """Call ``handler`` for these signals inside the block.

    A SIGHUP that this process ignores, as under nohup, stays ignored. Outside of the main thread
    Python cannot install handlers, so nothing changes there.
    """
    before = _install(handler, numbers)
    try:
        yield
    finally:
        for number, old in before.items():
            # None: the handler was installed outside of Python and cannot be put back
            signal.signal(number, signal.SIG_DFL if old is None else old)


def outlive_signals() -> None:
    """Ignore SIGTERM and SIGHUP from now on, except in blocks that handle them."""
    _install(lambda number, frame: None, TERMINATING)


def _install(
    handler: Callable[[int, FrameType | None], None], numbers: Sequence[int]
) -> dict[int, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}
    handled = [number for number in numbers if number != SIGHUP or not _is_ignored(number)]
    return {number: signal.signal(number, handler) for number in handled}


def _is_ignored(number: int) -> bool:
    return signal.getsignal(number) == signal.SIG_IGN


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Yield a StopRequest, which SIGTERM, SIGHUP and the first Ctrl-C in the block set.

    A second Ctrl-C raises KeyboardInterrupt.
    """
    stop = StopRequest()
    interrupted = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if number == signal.SIGINT and interrupted:
            raise KeyboardInterrupt
        interrupted = interrupted or number == signal.SIGINT
        stop.requested = stop.requested or signal.Signals(number).name

    with handle_signals(ask, *TERMINATING, signal.SIGINT):
        yield stop


@contextmanager
def _raise_on(make: Callable[[str], BaseException], *numbers: int) -> Iterator[None]:
    """Raise an exception in the block on a signal.

    If the signal arrives in a function that C code called, Python may drop the exception, and the
    C code fails with an error of its own. The exception replaces that error.

    Args:
        make: makes the exception from the name of the signal.
    """
    received: list[str] = []

    def end(number: int, frame: FrameType | None) -> NoReturn:
        received.append(signal.Signals(number).name)
        raise make(received[0])

    with handle_signals(end, *numbers):
        try:
            yield
        except Exception as error:
            if received:
                raise make(received[0]) from error
            raise


@contextmanager
def raise_terminated() -> Iterator[None]:
    """Raise Terminated in the block on SIGTERM or SIGHUP; it cleans up as after an error."""
    with _raise_on(Terminated, *TERMINATING):
        yield


@contextmanager
def raise_interrupted() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block on Ctrl-C."""
    with _raise_on(KeyboardInterrupt, signal.SIGINT):
        yield


def leave_signals_to_parent() -> None:
    """Ignore terminal signals in this worker process; the parent ends it."""
    for number in filter(None, (signal.SIGINT, SIGHUP)):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_with_parent() -> None:
    """Ask Linux to send this process SIGTERM when its parent ends, however the parent ends.

    The parent puts its process id into the environment variable ``PARENT``. Without the variable,
    and on other systems, nothing changes. It starts this process in its main thread, as the signal
    comes when the thread ends that did so.
    """
    parent = os.environ.pop(PARENT, None)  # the processes that this one starts have another parent
    if parent is not None:
        end_with(int(parent))


def end_with(parent: int) -> None:
    """Ask Linux to send this process SIGTERM when its parent ends; see ``end_with_parent``."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGTERM)
