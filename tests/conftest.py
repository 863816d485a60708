"""For all tests."""

import os

from hypothesis import settings

# one thread, here and in the commands that tests start: set before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

# a busy machine is no failure: property tests have no deadline
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
