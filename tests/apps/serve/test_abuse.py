"""What one client can do to the others: large requests, dead connections, many requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tests.apps.serve.conftest  # noqa: F401, skips without the extra
from nmt.apps.serve.server import SECONDS_TO_SEND_HEADERS
from tests.apps.serve.process import SECONDS, Process
from tests.decoding.ctranslate2.cases import made, model_folder
from tests.decoding.untrained import LINES, untrained

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc"),
]
STEADY = 40  # MB in 1,000 requests
SOON = 5.0  # seconds; a small request needs a hundredth, and a batch in progress at most one
LARGE: dict[str, Any] = {"beam": 16, "n_best": 16, "token_scores": True, "align": True}


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that never ends a sentence: each line has a thousand positions."""
    translator = untrained(eos_bias=-20.0, max_len_offset=1000)
    return model_folder(translator, tmp_path_factory.mktemp("endless") / "endless")


@pytest.fixture
def server(start: Callable[..., Process], endless: Path, run: Path) -> Callable[..., Process]:
    """Return a function that serves both models; it allows large requests."""

    def serve(*flags: str, **settings: Any) -> Process:
        return start(endless, "--max-work", "1000000000", *flags, **settings)

    return serve


def send_large(server: Process) -> http.client.HTTPConnection:
    """Send a request of over a minute of work, and wait until it is computed."""
    connection = server.send(LINES * 20, **LARGE)
    time.sleep(1)
    return connection


def seconds_of_small(server: Process) -> float:
    """Return the seconds of a request of one short line, with another number of hypotheses."""
    started = time.monotonic()
    answer = server.send("pan", beam=2, max_len_offset=1).getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    return time.monotonic() - started


def idle(server: Process) -> None:
    """Wait until the server needs no processor time."""
    deadline = time.monotonic() + SOON
    while True:
        before = server.cpu_seconds()
        time.sleep(0.5)
        if server.cpu_seconds() - before < 0.1:
            return
        assert time.monotonic() < deadline, "the server still works"


def test_a_small_request_does_not_wait_for_a_large_one_which_ends_with_its_client(server):
    process = server("--timeout", "60")
    large = send_large(process)
    assert max(seconds_of_small(process) for _ in range(3)) < SOON
    assert process.metric("nmt_active_requests") == 1.0, "the large request is not computed"
    large.close()
    idle(process)


def test_sigterm_under_load_ends_in_the_stated_time(server: Callable[..., Process]) -> None:
    process = server("--timeout", "60", "--grace", "1")
    large = [send_large(process) for _ in range(2)]
    process.process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    for connection in large:
        answer = connection.getresponse()
        assert answer.status == 503
        assert json.loads(answer.read())["error"]["code"] == "stopping"
    assert process.process.wait(SECONDS) == 0
    assert time.monotonic() - started < 1 + SOON


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_batch_that_still_computes_does_not_change_the_exit_code(server, number, code):
    """CTranslate2 cannot be stopped, and Python crashes if it ends while CTranslate2 computes."""
    process = server("--timeout", "60", "--grace", "0.1", JOIN_SECONDS="0")
    large = send_large(process)
    process.process.send_signal(number)
    large.getresponse()
    assert process.process.wait(SECONDS) == code


def test_a_client_that_has_closed_its_side_gets_its_answer(start: Callable[..., Process]) -> None:
    process = start()
    for version in (b"1.0", b"1.1"):
        with socket.create_connection(("127.0.0.1", process.port), SECONDS) as one:
            body = json.dumps({"text": LINES}).encode()
            one.sendall(
                b"POST /translate HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (version, len(body), body)
            )
            one.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: one.recv(1 << 16), b""))  # up to the end, which comes
        *_, head, values = answer.split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert len(json.loads(values)["lines"]) == len(LINES)


def test_sigterm_does_not_wait_for_a_client_that_does_not_read(start, run, opened):
    process = start(run, "--grace", "1")
    (one,) = connect(process, b"", 1, opened)
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    one.sendall(request * 400)  # more than the buffers of the connection
    time.sleep(1)
    process.process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    assert process.process.wait(SECONDS) == 0
    assert time.monotonic() - started < 1 + 2 * SOON


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Connections that are closed at the end."""
    with ExitStack() as stack:
        yield stack


def connect(process: Process, data: bytes, count: int, opened: ExitStack) -> list[socket.socket]:
    """Open connections that send some bytes, and no more."""
    sockets = []
    for _ in range(count):
        one = opened.enter_context(socket.create_connection(("127.0.0.1", process.port), SECONDS))
        one.sendall(data)
        sockets.append(one)
    return sockets


def is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_connections_without_a_request_do_not_block_others(start, opened):
    """More than the server may open files; the limit of a shell is often 1,024."""
    process = start(files=256)
    before = process.cpu_seconds()
    sockets = connect(process, b"", 150, opened)
    sockets += connect(process, b"GET / HTTP/1.1\r\nHost: local", 250, opened)
    assert seconds_of_small(process) < SOON
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=SECONDS)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    deadline = time.monotonic() + SECONDS_TO_SEND_HEADERS + SOON
    while not all(map(is_closed, sockets)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert process.cpu_seconds() - before < SOON
    process.process.send_signal(signal.SIGTERM)
    assert process.process.stderr
    log = process.process.stderr.read().splitlines()
    assert [line for line in log if "connections are open" in line] == log[:1]
    assert len(log) == 3  # the others are about the end


def test_memory_is_bounded_over_thousands_of_requests(start, tmp_path):
    """Batches have many sizes, and each size compiles products.

    The model has the dimensions of the quickstart's. The second thousand requests add 9 to 27 MB,
    up to 100 MB if other programs need the cores, and a later thousand 10 MB. With oneDNN's own
    limit of 1,024 products instead of 128, each thousand adds 60 to 140 MB.
    """
    model = made(dim=192, ffn_dim=768, enc_layers=3, dec_layers=3)
    process = start(model_folder(model, tmp_path / "run"))
    words = " ".join(LINES).split()

    def client(number: int, requests: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=SECONDS)
        for n in range(requests):
            length = 1 + (7 * number + n) % 20
            line = " ".join(words[(number + k) % len(words)] for k in range(length))
            body = json.dumps({"text": line})
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 504)  # it waited too long, where other programs compute

    def load(requests: int) -> float:
        with ThreadPoolExecutor(64) as pool:
            list(pool.map(client, range(64), [requests // 64] * 64))  # raises what a client did
        return process.megabytes()

    memory = [load(1_000)]
    while len(memory) < 7:
        memory.append(load(1_000))
        if memory[-1] - memory[-2] < STEADY:
            return
    pytest.fail(f"MB after each 1,000 requests: {memory}")


def posted(kind: str, body: bytes, *headers: bytes) -> bytes:
    """Return a request to translate."""
    lines = [b"POST /translate HTTP/1.1", b"Host: localhost", b"Connection: close"]
    lines.append(b"Content-Type: " + kind.encode())
    lines += headers or [b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*lines, b"", body])


PART = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n'
HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
REQUESTS = {
    "huge head": HEAD + b"X: " + b"a" * 10_000_000,
    "many headers": HEAD + b"X: a\r\n" * 1_000_000,
    "long path": b"GET /" + b"a" * 10_000_000,
    "no HTTP": bytes(range(256)) * 1_000,
    "deep list": posted("application/json", b"[" * 900_000),
    "deep text": posted("application/json", b'{"text": ' + b"[" * 900_000),
    "deep glossary": posted("application/json", b'{"text": "a", "glossary": ' + b"[" * 900_000),
    "many errors": posted("application/json", b'{"glossary": [' + b"1," * 400_000 + b"1]}"),
    "many lines": posted("application/json", b'{"text": [' + b'"",' * 300_000 + b'""]}'),
    "digits": posted("application/json", b'{"beam": ' + b"9" * 900_000 + b"}"),
    "many keys": posted(
        "application/json", b"{" + b",".join(b'"%d":1' % i for i in range(70_000)) + b"}"
    ),
    "many parts": posted("multipart/form-data; boundary=x", PART * 15_000),
    "large part": posted("multipart/form-data; boundary=x", PART[:-3] + b"a" * 900_000),
    "head of a part": posted("multipart/form-data; boundary=x", b"--x\r\n" + b"a:" * 400_000),
    "long boundary": posted("multipart/form-data; boundary=" + "x" * 60_000, PART),
    "many fields": posted("application/x-www-form-urlencoded", b"a=&" * 300_000),
    "escapes": posted("application/x-www-form-urlencoded", b"%" * 900_000),
    "too large": posted("application/json", b"", b"Content-Length: 999999999999999999"),
    "negative length": posted("application/json", b"", b"Content-Length: -1"),
    "two lengths": posted("application/json", b"{}", b"Content-Length: 2", b"Content-Length: 9"),
    "large chunk": posted(
        "application/json",
        b"ffffffffffffffff\r\n" + b"a" * 2_000_000,
        b"Transfer-Encoding: chunked",
    ),
    "many chunks": posted(
        "application/json", b"1\r\na\r\n" * 1_100_000, b"Transfer-Encoding: chunked"
    ),
}


def test_hostile_requests_are_refused_soon_and_the_server_works_on(start) -> None:
    process = start()
    before = process.megabytes()
    for name, request in REQUESTS.items():
        started = time.monotonic()
        with socket.create_connection(("127.0.0.1", process.port), SECONDS) as one:
            answer = b""
            with contextlib.suppress(OSError):  # it may be closed before all is sent
                one.sendall(request)
                one.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                answer = b"".join(iter(partial(one.recv, 1 << 16), b""))
        answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert not answer or answer.startswith(b"HTTP/1.1 4"), (name, answer[:300])
        assert time.monotonic() - started < 4 * SOON, name  # a busy machine needs half of it
        assert seconds_of_small(process) < SOON, name
    assert process.megabytes() - before < 300
