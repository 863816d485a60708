"""Settings of all tests."""

import gc
import itertools
import os
import signal
import time

import pytest
import tqdm.std
from hypothesis import settings

from tests import final_reports
from tests.trained import short_export as short_export
from tests.trained import short_run as short_run
from tests.trained import trained as trained

DAY, YEAR = 86_400.0, 365 * 86_400.0

# one thread, here and in the commands that tests start; must be set before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

# commands inherit the handlers, and a shell ignores SIGINT in background jobs
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it

# garbage of earlier tests stays in forks, where a model of CTranslate2 would wait for its threads
os.register_at_fork(after_in_child=gc.freeze)

# a short training waits for the disk for most of its time, and only a power cut would need it
os.fsync = lambda descriptor: None

# property tests have no deadline, because the machine may be busy
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# each training ends with a report, which takes seconds; tests/apps/report writes those it looks at
final_reports.leave_out()


@pytest.fixture
def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the wall clock back and forward again and again, as NTP or a person may do."""
    real, jumps = time.time, itertools.cycle([0.0, -DAY, 20 * YEAR, -10 * YEAR, DAY])

    def jumped() -> float:
        return real() + next(jumps)

    monkeypatch.setattr(time, "time", jumped)
    monkeypatch.setattr(tqdm.std, "time", jumped)  # imported by its name
