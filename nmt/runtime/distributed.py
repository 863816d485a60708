"""Connect the processes of one run, as torchrun starts them: one GPU each, or all on CPUs."""

from __future__ import annotations

import contextlib
import datetime
import gc
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.errors import NmtError, RunError, Terminated, UserError
from nmt.runtime.signals import outlive_signals

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed import ProcessGroup, Store

# Other processes wait while rank 0 validates. The heartbeats notice one that ended or is frozen.
TIMEOUT = datetime.timedelta(hours=12)
INTERVAL = 1.0  # seconds between two heartbeats
PATIENCE = 8.0  # seconds without one after which a process has ended, if its connections broke
SILENCE = 600.0  # seconds without one after which a process is taken for frozen
ENDED = "ended"
LINES = 3  # log lines of a process that others print if it ends
CONTINUE = (
    "find the cause (torchrun reports the signal; SIGKILL may come from the kernel when memory is "
    "full), then continue from the last checkpoint with --resume"
)


class PeerEnded(RunError):
    """A process of this run has ended, so a collective operation of this one cannot end."""


@dataclass(frozen=True)
class World:
    """The processes of one run; by default only this one, which exchanges nothing.

    All processes must call the collective methods in the same order.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        local_rank: number of this process on its machine, and of its GPU.
        control: group of all processes for Python's values; None for one process.
        heartbeat: reports the phase of this process to the others; None for one process.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    control: ProcessGroup | None = None
    heartbeat: Heartbeat | None = None

    @property
    def is_main(self) -> bool:
        """Return whether this is rank 0, the only process that validates, decodes and writes."""
        return self.rank == 0

    def local_device(self, device: torch.device) -> torch.device:
        """Return the device of this process, where ``device`` is the recipe's.

        Raises:
            UserError: the recipe names one GPU for all processes.
        """
        if self.size == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise UserError(
                f'"{device}" names one GPU, but torchrun gives each process its own GPU',
                at="device",
                fix="set device=cuda",
            )
        import torch

        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def all_reduce_sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, without waiting for a GPU."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        flat = torch.cat([t.reshape(-1) for t in tensors])
        with _peer_errors():
            dist.all_reduce(flat)
        parts = flat.split([t.numel() for t in tensors])
        views = [part.view_as(t) for part, t in zip(parts, tensors, strict=True)]
        torch._foreach_copy_(list(tensors), views)

    def all_reduce_max(self, *numbers: float) -> list[float]:
        """Return the maximum of each number over the processes."""
        if self.size == 1:
            return list(numbers)
        import torch
        import torch.distributed as dist

        highest = torch.tensor(numbers, dtype=torch.float64)
        with _peer_errors():
            dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=self.control)
        return highest.tolist()

    def broadcast(self, value: Any = None) -> Any:
        """Return the value of rank 0; that of other processes is ignored."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        values = [value]
        with _peer_errors():
            dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def gather(self, values: list[Any]) -> list[Any]:
        """Return the values of all processes in one list, by rank."""
        if self.size == 1:
            return values
        import torch.distributed as dist

        lists: list[Any] = [None] * self.size
        with _peer_errors():
            dist.all_gather_object(lists, values, group=self.control)
        return [value for one in lists for value in one]

    def barrier(self) -> None:
        """Wait until every other process has called this or has ended."""
        with contextlib.suppress(PeerEnded):
            self.all_reduce_max(0.0)

    def enter(self, phase: str) -> None:
        """Report a new phase of this process to the others, such as ``update 12``."""
        if self.heartbeat is not None:
            self.heartbeat.phase = phase

    def note(self, line: str) -> None:
        """Share a log line with the other processes, which keep the last few."""
        if self.heartbeat is not None:
            self.heartbeat.note(line)


@contextlib.contextmanager
def init_distributed() -> Iterator[World]:
    """Connect the processes that torchrun started; without torchrun, yield this one alone.

    Raises:
        PeerEnded: another process failed or was killed. The lowest rank that is left says so, and
            the others end without a message.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # torchrun sets it
        yield World()
        return
    import torch
    import torch.distributed as dist

    # gloo also on a machine with GPUs, where a recipe may have device: cpu
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    # torchrun may keep its store when it restarts, with the addresses of processes that have ended
    attempt = f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    store, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))
    dist.init_process_group(
        backend, store=dist.PrefixStore(attempt, store), rank=rank, world_size=size, timeout=TIMEOUT
    )
    # Numbers for Python's control flow go over gloo, so that they need not wait for a GPU. Their
    # group is the last one in use: Python aborts if it ends while a thread of gloo still releases
    # a tensor. The threads of this group end with it. Those of the default group do not, because
    # torch keeps references to it.
    control = dist.new_group(backend="gloo", timeout=TIMEOUT)
    local_rank = int(os.environ["LOCAL_RANK"])
    # a connection of its own, because a wait in the main thread would block the heartbeat
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    beats = dist.PrefixStore(attempt, dist.TCPStore(*address, is_master=False))
    # torchrun sends SIGTERM to all once one has ended; the one that prints why must not die of it
    outlive_signals()
    try:
        with Heartbeat(beats, rank, size, end_process) as heartbeat:
            try:
                yield World(rank, size, local_rank, control, heartbeat)
            except (PeerEnded, RuntimeError, Terminated) as error:  # FSDP raises torch's own
                if (lost := heartbeat.find_lost()) is not None:
                    raise lost from error
                if not (isinstance(error, PeerEnded) and heartbeat.main_has_ended):
                    raise
    finally:
        dist.destroy_process_group()
        del control
        gc.collect()  # a cycle in a trainer would keep its World, and the group


@contextlib.contextmanager
def _peer_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # what torch raises for a closed connection
        raise PeerEnded("another process of this run has ended", fix=CONTINUE) from error


class Heartbeat:
    """Detect that a process hangs or has ended, and report what it was doing.

    Inside the block, a thread increments a number in the store of torchrun and reads those of the
    others, so that a long validation or a slow update is not taken for a hang. It also stores what
    this process does.

    Args:
        store: that all processes share.
        on_silence: receives an error that names a process that has been silent for ``silence``
            seconds.
        patience: seconds after which ``find_lost`` takes a silent process for ended.

    Attributes:
        phase: what this process does.
        lines: the last lines that it logged.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        on_silence: Callable[[PeerEnded], None],
        interval: float = INTERVAL,
        silence: float = SILENCE,
        patience: float = PATIENCE,
    ) -> None:
        self.phase, self.lines = "preparation", tuple[str, ...]()
        self._store, self._rank, self._size, self._on_silence = store, rank, size, on_silence
        self._interval, self._silence, self._patience = interval, silence, patience
        self._others = [other for other in range(size) if other != rank]
        self._signs: dict[int, str] = {}
        self._heard = dict.fromkeys(self._others, time.monotonic())
        self._end, self._error = threading.Event(), ""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, PeerEnded):
            self._error = error.summary if isinstance(error, NmtError) else repr(error)
        self._end.set()
        self._thread.join(timeout=5)

    def note(self, line: str) -> None:
        """Add a line to ``lines``, and store it at once."""
        self.lines = (*self.lines[1 - LINES :], line)
        with contextlib.suppress(RuntimeError):  # the store is gone
            self._store_status()

    @property
    def main_has_ended(self) -> bool:
        """Return whether rank 0 has ended by itself."""
        return self._signs.get(0) == ENDED

    def find_lost(self) -> BaseException | None:
        """Return the error of the process that failed or was killed; None = of no process.

        This waits until every other process has sent a heartbeat, has ended or is silent.
        For a process that is not the first one left, the error has no message.
        """
        called = time.monotonic()
        while self._thread.is_alive():
            time.sleep(self._interval / 2)
            now = time.monotonic()
            working = [other for other in self._others if self._signs.get(other) != ENDED]
            ended = {other: self._status(other) for other in self._others if other not in working}
            failed = [other for other, status in ended.items() if status["error"]]
            silent = [other for other in working if now - self._heard[other] > self._patience]
            if failed or silent:
                first = min(rank for rank in range(self._size) if rank not in silent)
                return (
                    self._error_of((failed or silent)[0]) if self._rank == first else SystemExit(3)
                )
            # a sign that was read after the call may have been given before it
            if all(self._heard[other] > called + 2 * self._interval for other in working):
                break
        return None

    def _error_of(self, rank: int, what: str = "was killed") -> PeerEnded:
        status = self._status(rank)
        if status["error"]:
            what = f"failed: {status['error']}"
        lines = "".join(f"\n  {line}" for line in status["lines"])
        return PeerEnded(
            f"{what}; phase: {status['phase']}" + (f"; its last lines:{lines}" if lines else ""),
            at=f"process {rank} of {self._size} (host {status['host']}, pid {status['pid']})",
            fix=CONTINUE,
        )

    def _status(self, rank: int) -> dict[str, Any]:
        return json.loads(self._store.get(_key("status", rank)))

    def _run(self) -> None:
        try:
            self._watch()
        except RuntimeError:  # torchrun ends all processes once its store is gone
            return

    def _beat(self, sign: str) -> None:
        self._store_status()
        self._store.set(_key("heartbeat", self._rank), sign)

    def _store_status(self) -> None:
        status = {
            "phase": self.phase,
            "lines": self.lines,
            "error": self._error,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        self._store.set(_key("status", self._rank), json.dumps(status))

    def _watch(self) -> None:
        keys = [_key("heartbeat", other) for other in self._others]
        beats, woken = 0, time.monotonic()
        while keys and not self._end.is_set():
            beats += 1
            self._beat(str(beats))
            signs = map(bytes.decode, self._store.multi_get(keys))  # waits for the first of each
            now = time.monotonic()
            if now - woken > self._silence / 2:  # this process, or the machine, was suspended
                self._heard = dict.fromkeys(self._others, now)
            woken = now
            for other, sign in zip(self._others, signs, strict=True):
                if sign != self._signs.get(other) or sign == ENDED:
                    self._signs[other], self._heard[other] = sign, now
                elif now - self._heard[other] > self._silence:
                    minutes = f"has not answered for {self._silence / 60:.0f} minutes"
                    self._on_silence(self._error_of(other, minutes))
                    return
            self._end.wait(self._interval)
        self._beat(ENDED)


def end_process(error: PeerEnded) -> None:
    """End this process, because another one is frozen and a collective operation cannot end."""
    print(f"nmt-train: {error}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)


def _key(kind: str, rank: int) -> str:
    return f"nmt/{kind}/{rank}"
