"""Independent pieces of work on all cores of a CPU.

Small matrix products gain little from a second core: the cores wait for each other at each of
them. One batch a core does not wait, and in processes of their own they do not wait for Python's
lock either. The processes are forked, as torch's DataLoader forks its own: they find the weights in
the memory that they share with this one. They may stay for later work, and with them the memory and
the compiled products that it has asked for.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from typing import Any, Generic, TypeVar

from nmt.errors import MachineError, UserError
from nmt.runtime.cpus import available_cpus, num_threads

Item = TypeVar("Item")
Result = TypeVar("Result")
# else another thread's processes could copy a pipe, and hide that its own has ended
_FORKING = threading.Lock()


MOST = 1024  # workers
CAN_FORK = sys.platform == "linux"  # elsewhere libraries do not survive it


def all_cores() -> int:
    """Return how many processes have a core each: what OMP_NUM_THREADS and the system allow."""
    return min(available_cpus(), num_threads()) if CAN_FORK else 1


def checked_workers(workers: int) -> int:
    """Return a number of processes that can be.

    Raises:
        UserError: it cannot be.
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MOST:
        raise UserError(
            f"workers: {workers} is not an integer of at least 1 and at most {MOST}",
            fix="give as many as there are cores, or fewer",
        )
    return workers


class WorkerPool(Generic[Item, Result]):
    """Processes that do the same work to one item after the other, each computing with one thread.

    They know what there was when they began: what changes later, here or by their work, changes
    nothing on the other side. They end when they are closed or no longer referred to, and when this
    process ends.
    """

    def __init__(self, work: Callable[[Item], Result], count: int) -> None:
        """``count`` processes; no reference to ``work`` is kept here."""
        from numba.core.compiler_lock import global_compiler_lock

        self._owner, self._idle = os.getpid(), True
        self._processes: dict[Connection, Any] = {}
        self.close = weakref.finalize(self, _end, self._processes, self._owner)
        fork = multiprocessing.get_context("fork")
        try:
            # a process forked while another thread compiles would wait for its lock for ever
            with _FORKING, global_compiler_lock, _signals_later():
                for _ in range(count):
                    ours, theirs = fork.Pipe()
                    # with a copy of this end, it would not see that its parent is gone
                    copies = [*self._processes, ours]
                    process = fork.Process(target=_serve, args=(work, theirs, copies), daemon=True)
                    process.start()
                    theirs.close()
                    self._processes[ours] = process
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether all wait for work: of this process, not of one that it forked."""
        mine = self._idle and self.close.alive and self._owner == os.getpid()
        return mine and all(process.is_alive() for process in self._processes.values())

    def map(self, items: Sequence[Item]) -> Generator[Result, None, None]:
        """``map(work, items)``. When this ends early, by an error or an interruption, all close.

        Raises:
            MachineError: a process was ended from outside.
        """
        assert self.alive
        self._idle = False
        left = iter(enumerate(items))
        busy: set[Connection] = set()
        ready: dict[int, Any] = {}  # result and error

        def give(connection: Connection) -> None:
            if (numbered := next(left, None)) is not None:
                busy.add(connection)
                connection.send(numbered)

        try:
            for connection in self._processes:
                with self._noticing_end(connection):
                    give(connection)
            for wanted in range(len(items)):
                while wanted not in ready:
                    for answered in wait(list(busy)):
                        assert isinstance(answered, Connection)
                        with self._noticing_end(answered):
                            number, *answer = answered.recv()
                            busy.remove(answered)
                            ready[number] = answer
                            give(answered)
                result, error = ready.pop(wanted)
                if error is not None:
                    raise error
                yield result
        except BaseException:
            self.close()
            raise
        self._idle = True

    @contextlib.contextmanager
    def _noticing_end(self, connection: Connection) -> Iterator[None]:
        """
        Raises:
            MachineError: the process at the other end is gone.
        """
        try:
            yield
        except (EOFError, OSError) as error:
            if connection not in self._processes:  # all were closed, as at an exit
                raise
            process = self._processes[connection]
            process.join()
            raise MachineError(
                f"a process that searched a batch was ended (exit code {process.exitcode})",
                fix="this is mostly for lack of memory: take fewer --workers, or a smaller "
                "--batch-tokens",
            ) from error


class Staying(Generic[Item, Result]):
    """``Cores`` from one call to the next, as long as what they know stays the same."""

    def __init__(self) -> None:
        self._cores: WorkerPool[Item, Result] | None = None
        self._known: tuple[Any, ...] = ()
        self._turn = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Staying, ()  # a deep copy has processes of its own

    @contextlib.contextmanager
    def using(
        self, work: Callable[[Item], Result], count: int, known: Sequence[Any], stay: bool
    ) -> Iterator[WorkerPool[Item, Result] | None]:
        """``count`` processes for ``work``; None while they work for someone else.

        Args:
            known: what they know of; if anything else comes, they begin anew.
            stay: until the next call; otherwise they end with this one.
        """
        if not self._turn.acquire(blocking=False):
            yield None
            return
        try:
            import torch

            autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            now = (count, *autocast, *known)
            if self._cores is None or not self._cores.alive or self._known != now:
                self._end()
                self._cores, self._known = WorkerPool(work, count), now
            try:
                yield self._cores
            finally:
                if not stay:
                    self._end()
        finally:
            self._turn.release()

    def _end(self) -> None:
        if self._cores is not None:
            self._cores.close()
        self._cores, self._known = None, ()


def _end(processes: dict[Connection, Any], owner: int) -> None:
    """End processes, whatever they are at, but not those of a process that forked this one."""
    if owner != os.getpid():
        return
    for connection, process in processes.items():
        connection.close()
        process.kill()
    while processes:
        connection, process = next(iter(processes.items()))
        process.join()
        del processes[connection]
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


def _serve(
    work: Callable[[Item], Result], connection: Connection, copies: Sequence[Connection]
) -> None:
    """What a process does: the work, to each item that comes, until its parent is gone."""
    import torch

    for copy in copies:
        copy.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption ends
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            number, item = connection.recv()
            result, error = None, None
            try:
                result = work(item)
            except Exception as raised:  # raised again where it can be seen, with its traceback
                error = ExceptionWithTraceback(raised, raised.__traceback__)
            connection.send((number, result, error))
