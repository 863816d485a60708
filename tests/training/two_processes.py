"""Run nmt-train under torchrun, and disturb it.

The second process fails or stops at an update, or the threads of gloo are late at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from pathlib import Path

from nmt.cli.train import main
from nmt.runtime.distributed import World
from nmt.training.trainer import Trainer


def inject(event: str, when: int) -> None:
    update = Trainer.update

    def method(self, *arguments):
        update(self, *arguments)
        if self.state.update == when and os.environ["RANK"] == "1":
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
    if event == "delays":
        delay_gloo()  # at the end; the update does not matter
    else:
        inject(event, int(update))
    run = next(word.removeprefix("out=") for word in arguments if word.startswith("out="))
    atexit.register(report_end, Path(run))
    sys.exit(main(arguments))
