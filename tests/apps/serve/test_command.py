"""nmt-serve as a process: what it refuses to start with, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tests.apps.serve.conftest  # noqa: F401, skips without the extra
from nmt.apps.serve.guard import is_loopback
from nmt.apps.serve.server import listen
from nmt.cli import serve
from nmt.cli.serve import KEY_VARIABLE, model_names
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from tests.apps.serve.conftest import KEY
from tests.apps.serve.process import SECONDS
from tests.decoding.ctranslate2.cases import exported, model_folder
from tests.decoding.untrained import untrained

ROOT = Path(__file__).parents[3]
ARABIC = "\u0645\u0631\u062d\u0628\u0627"


@pytest.fixture
def refused(run, capsys, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)

    def call(*argv: str) -> str:
        assert serve.main([str(run), *argv]) in (2, 4)
        return capsys.readouterr().err

    return call


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_address_needs_a_key(refused: Callable[..., str], host: str) -> None:
    error = refused("--host", host)
    assert error.startswith(f"nmt-serve: --host: without an API key, {host} would let other")
    assert "--api-key-file FILE" in error
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("key", ["", "short", "a key with spaces in it", ARABIC * 4])
def test_weak_keys_are_refused(refused, key, tmp_path, monkeypatch):
    message = "an API key has at least 16 ASCII characters and no space"
    (tmp_path / "key").write_text(key, encoding="utf-8")
    assert message in refused("--api-key-file", str(tmp_path / "key"))
    monkeypatch.setenv(KEY_VARIABLE, key)
    error = refused()
    assert error.startswith(f"nmt-serve: {KEY_VARIABLE}: {message}")
    assert not key or key not in error


def test_a_key_file_that_is_missing_a_port_in_use_and_a_limit_of_0(refused):
    assert "the API key cannot be read" in refused("--api-key-file", "/nonexistent")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1, port {port}" in refused("--port", port)
    assert refused("--max-lines", "0").startswith("nmt-serve: --max-lines: 0 is not a number above")
    # JSON has no infinity, so GET /models would fail
    assert refused("--timeout", "inf").startswith("nmt-serve: --timeout: inf is not a number above")


@pytest.mark.parametrize("port", [-1, 65536, 73536])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(UserError, match=f"--port: {port} is not a port from 0 to 65535"):
        listen("127.0.0.1", port)


def test_missing_packages_are_named(refused, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("nmt.apps.serve.app")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert 'pip install -c constraints.txt -e ".[serve]"' in refused()


def test_names_of_models_are_different(run: Path, tmp_path: Path) -> None:
    other, trained = tmp_path / "run", tmp_path / "trained"
    trained.mkdir()
    (trained / "config.yaml").touch()
    folders = [str(run), str(trained / "model"), str(other)]
    assert list(model_names(folders)) == ["run", "trained/model", "run-2"]


def test_a_glossary_is_for_one_pair_of_languages(refused, tmp_path):
    terms, other = tmp_path / "terms.tsv", untrained(langs=("pt", "en"))
    terms.write_text("pan\tloaf\tnote\tmore\n", encoding="utf-8")
    assert f"{terms}:1: 4 columns" in refused("--glossary", str(terms))
    terms.write_text("pan\tloaf\n", encoding="utf-8")
    folder = str(model_folder(other, tmp_path / "pt"))
    error = refused(folder, "--glossary", str(terms), "--port", "0")
    assert "--glossary: a glossary is for one source and one target language" in error
    assert "gl-en, pt-en" in error


# ---------------------------------------------------------------- a server process


@pytest.mark.slow
def test_a_server_requires_the_terms_of_its_glossary(run, start, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("pan\tloaf\n", encoding="utf-8")
    server = start(run, "--glossary", terms)
    answer = json.loads(server.send("pan").getresponse().read())
    (expected,) = untrained().translate(["pan"], glossary=[("pan", "loaf")])
    assert answer["lines"][0]["translations"][0]["text"] == expected
    assert "loaf" in expected.lower()


@pytest.mark.slow
def test_sigterm_ends_the_server_after_the_answers_to_all_accepted_requests(start):
    server = start()
    lines = ["o can come pan branco na cidade"] * 60
    sent = [server.send(lines, beam=16, n_best=1 + n) for n in range(4)]  # nothing shares a batch
    deadline = time.monotonic() + SECONDS
    while server.metric("nmt_active_requests") < len(sent):
        assert time.monotonic() < deadline
    server.process.send_signal(signal.SIGTERM)
    for line in server.process.stderr or ():
        if found := re.match(r"stopping: (\d+) requests? to finish within 10 seconds", line):
            assert int(found[1]) > 0, "too fast: the test needs requests in flight"
            break
    refused = server.send("a").getresponse()
    assert refused.status == 503
    assert json.loads(refused.read())["error"]["code"] == "stopping"
    for n, connection in enumerate(sent):
        answer = connection.getresponse()
        assert answer.status == 200
        translated = json.loads(answer.read())["lines"]
        assert [len(line["translations"]) for line in translated] == [1 + n] * len(lines)
    assert server.process.wait(SECONDS) == 0
    # the first server of a model loads torch to write it for CTranslate2
    assert re.fullmatch(r"torch: (True|False)\n", server.process.stderr.read())
    with pytest.raises(ConnectionRefusedError):
        server.send("a")


@pytest.mark.slow
def test_an_exported_folder_is_served_without_torch_until_ctrl_c(start, tmp_path):
    pytest.importorskip("ctranslate2")
    exported(untrained(), tmp_path / "model")
    server = start(tmp_path / "model", **{KEY_VARIABLE: KEY})
    assert server.send("o can").getresponse().status == 401
    with_key = {"X-API-Key": KEY}
    answer = server.send("o can", headers=with_key).getresponse()
    (line,) = json.loads(answer.read())["lines"]
    expected = Translator.load(tmp_path / "model", "cpu").translate(["o can"])
    assert [one["text"] for one in line["translations"]] == expected
    # the client has the answer a moment before the server stops counting the request
    deadline = time.monotonic() + SECONDS
    while server.metric("nmt_active_requests", with_key):
        assert time.monotonic() < deadline
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(SECONDS) == 130
    assert server.process.stderr.read() == (
        "stopping: 0 requests to finish within 10 seconds\nnmt-serve: interrupted\ntorch: False\n"
    )
