"""Connect the processes of one training, as torchrun starts them: one GPU each, or all on CPUs."""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.errors import RunError, UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed import ProcessGroup, Store

# Other processes wait while rank 0 validates. That a process has ended is noticed by torchrun, and
# that it is frozen by its heartbeat.
TIMEOUT = datetime.timedelta(hours=12)
INTERVAL = 10.0  # seconds between two signs of life
SILENCE = 600.0  # seconds without one after which a process is taken for frozen
ENDED = "ended"


@dataclass(frozen=True)
class World:
    """The processes of one training; by default only this one, which exchanges nothing.

    All processes must call the collective methods in the same order.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        local_rank: number of this process on its machine, and of its GPU.
        control: group of all processes for Python's values; None for one process.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    control: ProcessGroup | None = None

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

    def barrier(self) -> None:
        """Wait until every other process has called this or has ended."""
        with contextlib.suppress(RunError):
            self.all_reduce_max(0.0)


@contextlib.contextmanager
def init_distributed() -> Iterator[World]:
    """Connect the processes that torchrun started; without torchrun, yield this one alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # torchrun sets it
        yield World()
        return
    import torch
    import torch.distributed as dist

    # gloo also on a machine with GPUs, where a recipe may have device: cpu
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT)
    # Numbers for Python's control flow go over gloo, so that they need not wait for a GPU. Their
    # group is the last one in use: Python aborts if it ends while a thread of gloo still releases
    # a tensor. The threads of this group end with it. Those of the default group do not, because
    # torch keeps references to it.
    control = dist.new_group(backend="gloo", timeout=TIMEOUT)
    local_rank = int(os.environ["LOCAL_RANK"])
    rank, size = dist.get_rank(), dist.get_world_size()
    # a connection of its own, because a wait in the main thread would block the heartbeat
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*address, is_master=False)
    try:
        with Heartbeat(store, rank, size, end_process):
            yield World(rank, size, local_rank, control)
    finally:
        dist.destroy_process_group()
        del control
        gc.collect()  # a cycle in a trainer would keep its World, and the group


@contextlib.contextmanager
def _peer_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # what torch raises for a closed connection
        raise RunError(
            "another process of this run has ended",
            fix="read the error message of that process, then continue from the last checkpoint "
            "with --resume",
        ) from error


class Heartbeat:
    """Notice that a process hangs, where the others would wait for it for hours.

    Inside the block, a thread increments a number in the store of torchrun and reads those of the
    others, so that a long validation or a slow update is not taken for a hang.

    Args:
        store: that all processes share; this object uses it alone.
        on_silence: receives the rank of a process that has been silent for ``silence`` seconds.
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
        f"process {rank} of this run has not answered for {SILENCE / 60:.0f} minutes",
        fix="find out why it hangs (its machine, its disk, a stopped process), then continue from "
        "the last checkpoint with --resume",
    )
    print(f"nmt-train: {error}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)


def _key(rank: int) -> str:
    return f"nmt/heartbeat/{rank}"
