"""For all tests."""

import os
import signal

from hypothesis import settings

# one thread, here and in the commands that tests start: set before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

# commands inherit it, and a shell that starts the tests in the background ignores it
signal.signal(signal.SIGINT, signal.default_int_handler)

# a busy machine is no failure: property tests have no deadline
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
