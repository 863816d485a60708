"""Run nmt-train under torchrun, and disturb it.

A process fails, stops or is killed at an update, its gradients are bad, or the threads of gloo are
late at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch.distributed

from nmt.cli.train import main
from nmt.runtime.distributed import World
from nmt.training.trainer import Trainer
from tests.training.test_bad_numbers import spoil


def inject(event: str, when: int, run: Path) -> None:
    """Disturb the second process at an update, or with ``kills-R`` process R in its first start.

    If it fails, the other one is slow to end, so that it gets torchrun's SIGTERM before it prints.
    """
    if event == "fails" and os.environ["RANK"] == "0":
        destroy = torch.distributed.destroy_process_group

        def slowly():
            destroy()
            time.sleep(5)

        torch.distributed.destroy_process_group = slowly
    update = Trainer.update

    def method(self, *arguments):
        update(self, *arguments)
        if self.state.update != when:
            return
        if event == f"kills-{os.environ['RANK']}":
            if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                (run / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        elif os.environ["RANK"] == "1" and not event.startswith("kills"):
            if event == "fails":
                raise MemoryError
            signal.raise_signal(signal.SIGTERM)

    Trainer.update = method  # type: ignore[method-assign]


def delay_gloo() -> None:
    """Before the last exchange, let the other threads run only while the main thread waits."""
    barrier = World.barrier

    def method(self):
        cpus = sorted(os.sched_getaffinity(0))
        cpu = cpus[int(os.environ["RANK"]) % len(cpus)]
        for thread in map(int, os.listdir("/proc/self/task")):
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, {cpu})
                if thread != os.getpid():
                    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        barrier(self)

    World.barrier = method  # type: ignore[method-assign]


def report_end(run: Path) -> None:
    """Print whether the other process has finished when this one ends."""
    if os.environ["RANK"] == "1":
        written = (run / "report.html").exists()
        print(f"the second process ends after the report: {written}", file=sys.stderr)


if __name__ == "__main__":
    event, update, *arguments = sys.argv[1:]
    run = Path(next(word.removeprefix("out=") for word in arguments if word.startswith("out=")))
    if event == "delays":
        delay_gloo()  # at the end; the update does not matter
    elif event.startswith("spoils"):
        if os.environ["RANK"] == "1":
            spoil(pytest.MonkeyPatch(), again=event == "spoils-again")
    else:
        inject(event, int(update), run)
    if os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        time.sleep(5)  # the other one looks for this process, and must not find its predecessor
    atexit.register(report_end, run)
    sys.exit(main(arguments))
