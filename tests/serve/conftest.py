"""A service with a tiny untrained model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from nmt.serve.app import Service
from nmt.serve.limits import Limits
from tests.decoding.untrained import untrained

KEY = "0123456789abcdef"
LIMITS = Limits(
    body=4_000, lines=8, characters=60, queue=16, seconds=20, beam=5, work=10_000, batch=4
)


@pytest.fixture
def service() -> Iterator[Service]:
    """Two models: ``one`` and ``two``."""
    service = Service({"one": (untrained(), "torch"), "two": (untrained(seed=5), "torch")}, LIMITS)
    yield service
    service.close()
