"""The exported page in Firefox, from disk, driven over WebDriver BiDi without geckodriver."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.apps.export.browser import export_browser
from nmt.store.model import Model
from tests.apps.export.pages import words
from tests.decoding.ctranslate2.cases import made, model_folder, pairs

websocket = pytest.importorskip("websocket", reason="selenium is not installed")
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
pytestmark = [
    pytest.mark.skipif(FIREFOX is None, reason="needs the Debian package firefox-esr"),
    pytest.mark.slow,
]
SECONDS = 60
STATUS = "document.querySelector('#status').textContent"
LINE = pairs()[0][0]


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


class Firefox:
    """One tab; ``run`` evaluates JavaScript."""

    def __init__(self, port: int) -> None:
        self.number, self.port = 0, port
        self.socket = until(self.connect)
        self.call("session.new", capabilities={})
        self.context = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def connect(self) -> Any:
        try:
            address = f"ws://127.0.0.1:{self.port}/session"
            return websocket.create_connection(address, timeout=SECONDS, suppress_origin=True)
        except OSError:
            return None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        self.socket.send(json.dumps(command))
        while (answer := json.loads(self.socket.recv())).get("id") != self.number:
            pass
        return answer["result"]

    def run(self, code: str) -> Any:
        target = {"context": self.context}
        found = self.call("script.evaluate", expression=code, target=target, awaitPromise=False)
        return found["result"].get("value")


@pytest.fixture
def firefox(tmp_path: Path) -> Iterator[Firefox]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--headless", "--no-remote", "--profile", tmp_path / "profile"]
    (tmp_path / "profile").mkdir()
    with subprocess.Popen(
        [FIREFOX, *options, "--remote-debugging-port", str(port), "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield Firefox(port)
        finally:
            process.terminate()


def test_from_disk_it_translates_as_torch(firefox, tmp_path):
    translator = made(words=words())
    model = Model.open(model_folder(translator, tmp_path / "model"))
    export_browser(model, tmp_path / "web", "fp32", force=False)
    address = (tmp_path / "web" / "index.html").as_uri()
    firefox.call("browsingContext.navigate", context=firefox.context, url=address, wait="complete")
    until(lambda: firefox.run(STATUS) == "Ready.")
    firefox.run(
        f"document.querySelector('#text').value = {json.dumps(LINE)};"
        "document.querySelector('#text').dispatchEvent(new Event('input')); 0"
    )
    (expected,) = translator.translate([LINE])
    until(lambda: firefox.run("document.querySelector('#translation').textContent") == expected)
