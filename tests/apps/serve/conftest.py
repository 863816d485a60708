"""Services with tiny untrained models, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from nmt.apps.serve.app import Service
from nmt.apps.serve.limits import Limits
from nmt.decoding.translator import Translator
from tests.apps.serve.process import Process
from tests.decoding.ctranslate2.cases import model_folder
from tests.decoding.untrained import untrained

KEY = "0123456789abcdef"
LOCAL, ELSEWHERE = "http://localhost:8000", "http://nmt.example.org"
LIMITS = Limits(
    body=4_000, lines=8, characters=60, queue=16, seconds=20, beam=5, work=10_000, batch=4,
    file=20_000,
)  # fmt: skip
Make = Callable[..., tuple[Service, Any]]


def both_ways() -> dict[str, tuple[Translator, str]]:
    """Return a model from Galician to English, and one that calls itself the reverse of it."""
    return {"gl-en": untrained(), "en-gl": untrained(5, langs=("en", "gl"))}


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that makes a service and a client of it; the service ends with the test."""
    testclient = pytest.importorskip("fastapi.testclient", reason="the extra test is missing")
    services: list[Service] = []

    def start(models: Any = None, limits: Limits = LIMITS, **settings: Any) -> tuple[Service, Any]:
        service = Service(models or {"one": untrained()}, limits, **settings)
        services.append(service)
        # with a key, any host name is allowed
        host = ELSEWHERE if settings.get("key") else LOCAL
        return service, testclient.TestClient(service.guard, base_url=host)

    yield start
    for service in services:
        service.close()


@pytest.fixture
def served(make: Make) -> tuple[Service, Any]:
    """A service of two models, ``one`` and ``two``, and a client of it."""
    return make({"one": untrained(), "two": untrained(seed=5)})


@pytest.fixture
def service(served: tuple[Service, Any]) -> Service:
    return served[0]


@pytest.fixture
def client(served: tuple[Service, Any]) -> Any:
    return served[1]


def problem(answer: Any) -> tuple[int, str]:
    """Return the status and the code of a refused request."""
    error = answer.json()["error"]
    assert error["fix"]
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, error["code"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(untrained(), tmp_path_factory.mktemp("serve") / "run")


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
