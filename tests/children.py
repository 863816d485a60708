"""Processes that hold what a test asks for, as forks of the test process."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def start_holding(take: Callable[[], object]) -> int:
    """Start a process that takes a lock and then waits to be killed; return its id."""
    ready, taken = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lock = take()  # noqa: F841  (it stays locked as long as it is referenced)
            os.write(taken, b"x")
            signal.pause()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(taken)  # the child has the only one, so that reading ends if the child does
    with open(ready, "rb") as pipe:
        assert pipe.read(1), "the process has ended"
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
