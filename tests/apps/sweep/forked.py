"""Start the stand-in for nmt-train by a fork, which has imported all that it needs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import BinaryIO

from tests.apps.sweep import fake_train

DEVNULL, STDOUT = subprocess.DEVNULL, subprocess.STDOUT


class Popen:
    """What ``nmt.apps.sweep.pool`` uses of ``subprocess.Popen``."""

    def __init__(
        self, command: Sequence[str], stdout: BinaryIO, env: dict[str, str], **_: object
    ) -> None:
        fork = multiprocessing.get_context("fork")
        self._process = fork.Process(target=_run, args=(command[1:], stdout.fileno(), env))
        self._process.start()
        self.kill = self._process.kill

    def terminate(self) -> None:
        self._process.terminate()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> None:
        self._process.join()


def _run(argv: list[str], output: int, environment: dict[str, str]) -> None:
    """Make of the fork what a new process would be."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(output, 1)
    sys.stdout = open(1, "w")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    sys.exit(fake_train.main())
