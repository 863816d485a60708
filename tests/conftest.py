"""For all tests."""

from hypothesis import settings

# a busy machine is no failure: property tests have no deadline
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
