"""Independent pieces of work on all cores of a CPU.

Small matrix products gain little from a second core: the cores wait for each other at each of
them. One batch a core does not wait, and in processes of their own they do not wait for Python's
lock either. The processes are forked when there is work, as torch's DataLoader forks its own: they
find weights and work in the memory that they share with this one, and send back results alone.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

from nmt.errors import MachineError

Item = TypeVar("Item")
Result = TypeVar("Result")
NUMBER = 4  # bytes of the number of an item
MOST = 16_000  # numbers that a pipe holds


def can_fork() -> bool:
    """Whether there are cores to share work among, on a system whose processes may be forked."""
    return sys.platform == "linux" and torch.get_num_threads() > 1


def on_cores(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """``map(work, items)`` in as many processes as torch has threads, each computing with one.

    What work changes is lost, but for its result. When this ends early, by an error or an
    interruption, so do the processes.

    Raises:
        MachineError: a process was ended from outside.
    """
    for first in range(0, len(items), MOST):
        yield from _forked(work, items[first : first + MOST])


def _forked(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    fork = multiprocessing.get_context("fork")
    numbers, to_numbers = os.pipe()
    os.write(to_numbers, b"".join(n.to_bytes(NUMBER, "big") for n in range(len(items))))
    processes: dict[Connection, Any] = {}
    ready: dict[int, tuple[Any, Exception | None]] = {}
    wanted = 0
    try:
        with _signals_later():
            for _ in range(min(torch.get_num_threads(), len(items))):
                ours, theirs = fork.Pipe(duplex=False)
                target = (work, items, numbers, to_numbers, theirs, os.getpid())
                process = fork.Process(target=_serve, args=target, daemon=True)
                process.start()
                theirs.close()
                processes[ours] = process
        os.close(to_numbers)
        to_numbers = -1
        while wanted < len(items):
            for connection in wait(list(processes)):
                assert isinstance(connection, Connection)
                try:
                    number, *answer = connection.recv()
                except EOFError:
                    connection.close()
                    _ended(processes.pop(connection))
                    continue
                ready[number] = (answer[0], answer[1])
            for number in itertools.takewhile(ready.__contains__, itertools.count(wanted)):
                result, error = ready.pop(number)
                if error is not None:
                    raise error
                wanted += 1
                yield result
    finally:
        for descriptor in (numbers, to_numbers):
            if descriptor >= 0:
                os.close(descriptor)
        for connection, process in processes.items():
            connection.close()
            process.kill()
            process.join()
            process.close()


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Python drops what a signal raises while it forks; so signals wait until that is over."""
    came: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda number, frame: came.append(number))
    try:
        with warnings.catch_warnings():  # of Python 3.12, about threads, which have no part in this
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for sent in came:
            signal.raise_signal(sent)


def _ended(process: Any) -> None:
    """
    Raises:
        MachineError: not because the work was done.
    """
    process.join()
    code = process.exitcode
    process.close()
    if code:
        raise MachineError(
            f"a process that searched a batch was ended (exit code {code})",
            fix="this is mostly for lack of memory: set OMP_NUM_THREADS to fewer processes, or "
            "take a smaller --batch-tokens",
        )


def _serve(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    numbers: int,
    to_numbers: int,
    answers: Connection,
    parent: int,
) -> None:
    """What a process does: take the next number, until there is none or its parent is gone."""
    os.close(to_numbers)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption ends
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    while (number := os.read(numbers, NUMBER)) and os.getppid() == parent:
        result, error = None, None
        try:
            result = work(items[int.from_bytes(number, "big")])
        except Exception as raised:  # raised again where it can be seen
            error = raised
        answers.send((int.from_bytes(number, "big"), result, error))
