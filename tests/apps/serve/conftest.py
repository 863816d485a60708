"""A service with a tiny untrained model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from nmt.apps.serve.app import Service
from nmt.apps.serve.limits import Limits
from tests.apps.serve.process import Process
from tests.decoding.untrained import untrained
from tests.export.cases import run_folder

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_folder(untrained(), tmp_path_factory.mktemp("serve") / "run")


@pytest.fixture
def start(run: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start_one(*argv: str | Path, **settings: Any) -> Process:
        started.append(Process(*(argv or (run,)), **settings))
        return started[-1]

    yield start_one
    for one in started:
        one.process.kill()
        one.process.wait()
        one.process.stderr.close()
