"""Run independent jobs on a pool of worker processes, one for each CPU core.

Small matrix products gain little from a second core. A batch for each core is faster, and in
separate processes the batches do not wait for Python's lock. The workers are forked, like those of
torch's DataLoader, so they share the memory of the weights. They can be kept for later calls, with
the memory and the compiled products that they have allocated.

``concurrent.futures.ProcessPoolExecutor`` has three disadvantages, even with a fork context. Its
workers outlive a parent that is killed, because each holds a copy of the other end of the pipe. It
waits for running jobs when it is interrupted. It does not report the exit code of a worker.
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
from nmt.runtime.cpus import available_cpus, num_threads, within_limit
from nmt.runtime.signals import TERMINATING, handle_signals, leave_signals_to_parent

Job = TypeVar("Job")
Result = TypeVar("Result")
# without it, a worker forked by another thread at the same time could inherit the end of a pipe,
# and hide that the worker at the other end has ended
_FORKING = threading.Lock()

MAX_WORKERS = 1024
STOP_INTERVAL = 0.1  # seconds between two checks whether to stop
CAN_FORK = sys.platform == "linux"  # on other systems some libraries do not survive a fork


def all_cores() -> int:
    """Count the available CPUs, at most OMP_NUM_THREADS; 1 if forks are not safe."""
    return within_limit(min(available_cpus(), num_threads())) if CAN_FORK else 1


def check_workers(workers: int) -> int:
    """Return a number of workers; UserError unless it is from 1 to MAX_WORKERS."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MAX_WORKERS:
        raise UserError(
            f"workers: {workers} is not an integer from 1 to {MAX_WORKERS}",
            fix="give the number of cores, or a smaller number",
        )
    return workers


class WorkerPool(Generic[Job, Result]):
    """Worker processes that apply a function to one job after the other, with one thread each.

    Workers see the state of the parent at the time of the fork; later changes on either side do not
    reach the other. They end when the pool is closed or deleted, and when the parent ends.
    """

    def __init__(self) -> None:
        self._in_use = threading.Lock()
        self._workers: dict[Connection, Any] = {}
        self._known: tuple[Any, ...] = ()
        self.close: Callable[[], Any] = lambda: None

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerPool, ()  # a deep copy has workers of its own

    def map(
        self,
        function: Callable[[Job], Result],
        jobs: Sequence[Job],
        workers: int,
        known: Sequence[Any] = (),
        keep: bool = False,
        stop: Callable[[], None] = lambda: None,
    ) -> Generator[Result, None, None]:
        """Yield ``function(job)`` for each job, in order.

        While another thread, or a caller of this call, uses the workers, this process computes.

        Args:
            function: inherited by the fork, not pickled; the pool keeps no reference to it.
            workers: number of processes.
            known: what workers know from the fork; if anything in it is another object, or the
                number of workers changes, they are started again.
            keep: whether the workers stay for the next call. They always end if this generator is
                closed early or raises an error.
            stop: called while the workers compute; may raise an exception, which ends them.

        Raises:
            MachineError: a worker was ended from outside.
            Exception: what ``function`` raises, with the traceback of the worker.
        """
        if not self._in_use.acquire(blocking=False):
            for job in jobs:
                stop()
                yield function(job)
            return
        try:
            self._start(function, workers, known)
            yield from self._map(jobs, stop)
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                self.close()
            self._in_use.release()

    def _start(self, function: Callable[[Job], Result], count: int, known: Sequence[Any]) -> None:
        """Start workers, unless those that run are alive and know the same."""
        import torch
        from numba.core.compiler_lock import global_compiler_lock

        autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        now = (os.getpid(), count, *autocast, *known)
        alive = all(worker.is_alive() for worker in self._workers.values())
        if self._workers and alive and self._known == now:
            return
        self.close()
        self._workers, self._known = {}, now
        self.close = weakref.finalize(self, _end, self._workers, os.getpid())
        fork = multiprocessing.get_context("fork")
        # a worker forked while another thread compiles would wait forever for the compiler's lock
        with _FORKING, global_compiler_lock, _deferred_signals():
            for _ in range(count):
                ours, theirs = fork.Pipe()
                # a worker with a copy of our end would not notice that its parent has ended
                inherited = [*self._workers, ours]
                arguments = (function, theirs, inherited)
                worker = fork.Process(target=_serve, args=arguments, daemon=True)
                worker.start()
                theirs.close()
                self._workers[ours] = worker

    def _map(self, jobs: Sequence[Job], stop: Callable[[], None]) -> Generator[Result, None, None]:
        remaining = iter(enumerate(jobs))
        busy: set[Connection] = set()
        answers: dict[int, Any] = {}  # results and errors that came before their turn

        def send(connection: Connection) -> None:
            if (numbered := next(remaining, None)) is not None:
                busy.add(connection)
                connection.send(numbered)

        for connection in self._workers:
            with self._detecting_end(connection):
                send(connection)
        for wanted in range(len(jobs)):
            while wanted not in answers:
                stop()
                for answered in wait(list(busy), STOP_INTERVAL):
                    assert isinstance(answered, Connection)
                    with self._detecting_end(answered):
                        number, *answer = answered.recv()
                        busy.remove(answered)
                        answers[number] = answer
                        send(answered)
            result, error = answers.pop(wanted)
            if error is not None:
                raise error
            yield result

    @contextlib.contextmanager
    def _detecting_end(self, connection: Connection) -> Iterator[None]:
        """Turn the errors of a closed connection into one that names the exit code."""
        try:
            yield
        except (EOFError, OSError) as error:
            if connection not in self._workers:  # all were closed, as at an exit
                raise
            worker = self._workers[connection]
            worker.join()
            raise MachineError(
                f"a worker process was ended from outside (exit code {worker.exitcode})",
                fix="memory is probably short: use fewer --workers or a smaller --batch-tokens",
            ) from error


def _end(workers: dict[Connection, Any], owner: int) -> None:
    """Kill and join workers, unless this process is a fork of their parent."""
    if owner != os.getpid():
        return
    for connection, worker in workers.items():
        connection.close()
        worker.kill()
    while workers:
        connection, worker = next(iter(workers.items()))
        worker.join()
        del workers[connection]
        worker.close()


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
    """Deliver signals after the context: Python loses exceptions that handlers raise in a fork."""
    received: list[int] = []
    try:
        with (
            handle_signals(lambda n, frame: received.append(n), signal.SIGINT, *TERMINATING),
            warnings.catch_warnings(),
        ):
            # Python 3.12 warns that threads of the parent do not run in a fork; none is needed
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for number in received:
            signal.raise_signal(number)


def _serve(
    function: Callable[[Job], Result], connection: Connection, inherited: Sequence[Connection]
) -> None:
    """Apply the function to each job until the parent ends."""
    import torch

    for other in inherited:
        other.close()
    leave_signals_to_parent()
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            number, job = connection.recv()
            result, error = None, None
            try:
                result = function(job)
            except Exception as raised:  # raised again in the parent, with its traceback
                error = ExceptionWithTraceback(raised, raised.__traceback__)
            connection.send((number, result, error))
