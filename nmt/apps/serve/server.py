"""Run the application with uvicorn: limit connections, and shut down without losing requests.

Connections are limited before a request is read, so a server that requires a key is protected too.
Each process may have a limited number of open files, and a connection is one. Without a descriptor
left, no connection can be accepted. So the server keeps fewer connections. A new one displaces the
one that has waited for a request for the longest time, because that is the least likely to send
one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

from nmt.apps.serve.app import Service
from nmt.apps.serve.guard import CONNECTION
from nmt.errors import MachineError, UserError
from nmt.runtime.signals import TERMINATING, handle_signals
from nmt.runtime.words import quantity

BACKLOG = 2048  # connections that wait to be accepted
SECONDS_TO_CLOSE = 2  # connections, after the last answer
HIGHEST_PORT = 65_535
MOST_CONNECTIONS = 1_000
ACCEPTED_AT_ONCE = 32  # connections, before the first of them is counted
RESERVED = 4 * ACCEPTED_AT_ONCE  # descriptors for these, and for files
SECONDS_TO_SEND_HEADERS = 10.0  # also between two requests
SECONDS_TO_READ = 30.0  # an answer, after the longest time of a translation
SECONDS_BETWEEN_CHECKS = 0.2  # that a client which sends nothing more is there
SECONDS_BETWEEN_NOTES = 60.0


def most_connections() -> int:
    """Return how many connections this process can have, and raise its soft limit for them."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    needed = used + RESERVED + MOST_CONNECTIONS
    allowed = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(1, allowed - used - RESERVED)


class Connections:
    """All connections of a server.

    Args:
        answer_seconds: the longest time that a request may take.
    """

    def __init__(self, most: int, answer_seconds: float) -> None:
        self.most, self.answer_seconds = most, answer_seconds
        # in the order in which they began to wait; a dict keeps the order
        self.waiting: dict[Connection, None] = {}
        self.busy: set[Connection] = set()
        self._noted = -SECONDS_BETWEEN_NOTES

    def make_room(self) -> None:
        """Close the longest-idle connection if there are too many."""
        if len(self.waiting) + len(self.busy) <= self.most:
            return
        next(iter(self.waiting)).abort()
        if time.monotonic() >= self._noted + SECONDS_BETWEEN_NOTES:
            self._noted = time.monotonic()
            print(
                f"note: {self.most:,} connections are open, the limit; the longest-idle connection "
                "is closed",
                file=sys.stderr,
            )


class Connection(asyncio.Protocol):
    """Passes the events of a connection to uvicorn, and ends the connection when time is over.

    As a context, it is the time in which a request is answered.

    Args:
        config, server_state, app_state, _loop: of uvicorn, which calls a protocol with them.
    """

    def __init__(
        self,
        all_connections: Connections,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._all = all_connections
        self._loop = _loop or asyncio.get_running_loop()
        state = {**app_state, CONNECTION: self}
        self._http: Any = AutoHTTPProtocol(  # type: ignore[call-arg]
            config=config, server_state=server_state, app_state=state, _loop=self._loop
        )
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._half_closed = False  # no further request comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        self._transport = cast(asyncio.Transport, transport)
        self._http.connection_made(self._transport)
        self._wait()
        self._all.make_room()

    def data_received(self, data: bytes) -> None:
        """Pass data to uvicorn."""
        self._http.data_received(data)

    def eof_received(self) -> bool:
        """Return whether the connection stays open, for an answer.

        The client has closed the connection, or only its own side, and waits for the answer. The
        server learns which by sending something: 100 Continue (RFC 9110, section 15.2).
        """
        cycle = self._http.cycle
        if self._transport is None or cycle is None or cycle.response_complete:
            return False
        self._half_closed = True
        if not cycle.response_started and cycle.scope["http_version"] != "1.0":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._abort_if_closed()
        return True

    def _abort_if_closed(self) -> None:
        if self._transport is None:
            return
        if self._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort()
        else:
            self._loop.call_later(SECONDS_BETWEEN_CHECKS, self._abort_if_closed)

    def pause_writing(self) -> None:
        """Tell uvicorn that the client does not read."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Tell uvicorn that the client reads again."""
        self._http.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Leave the other connections."""
        self._leave()
        self._transport = None
        self._http.connection_lost(error)

    def abort(self) -> None:
        """Close the connection without an answer."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def __enter__(self) -> None:
        """Begin to answer a request."""
        self._leave()
        if self._transport is not None:
            self._all.busy.add(self)
            self._abort_after(self._all.answer_seconds + SECONDS_TO_READ)

    def __exit__(self, *_: object) -> None:
        """Begin to wait for the next request."""
        self._leave()
        if self._half_closed and self._transport is not None:
            self._transport.close()
        elif self._transport is not None:
            self._wait()

    def _wait(self) -> None:
        self._all.waiting[self] = None
        self._abort_after(SECONDS_TO_SEND_HEADERS)

    def _abort_after(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self.abort)

    def _leave(self) -> None:
        self._all.waiting.pop(self, None)
        self._all.busy.discard(self)
        if self._timer is not None:
            self._timer.cancel()


class Server(uvicorn.Server):
    """A server that finishes accepted requests before it ends, within a time limit.

    SIGTERM, SIGHUP and Ctrl-C stop it: new translations get status 503. The server ends when the
    accepted ones are answered. Those that are not answered in the time of grace get status 503,
    too. A second Ctrl-C ends it at once.

    Attributes:
        interrupted: whether Ctrl-C stopped it.
    """

    def __init__(self, service: Service) -> None:
        self.connections = Connections(most_connections(), service.limits.seconds)
        super().__init__(
            uvicorn.Config(
                service.guard,
                # uvicorn calls it as the class of a protocol
                http=cast(Any, functools.partial(Connection, self.connections)),
                ws="none",
                # a warning is a line for each invalid request
                log_level="error",
                access_log=False,
                server_header=False,
                backlog=ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=SECONDS_TO_CLOSE,
            )
        )
        self.service, self.guard = service, service.guard
        self.interrupted = False
        self._end_of_grace = float("inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        for opened in sockets or []:
            opened.listen(BACKLOG)  # asyncio set it to the number that it accepts at once

    async def on_tick(self, counter: int) -> bool:
        """Return whether the server ends now; called ten times a second."""
        end = await super().on_tick(counter)
        late = time.monotonic() - self._end_of_grace
        if late > 0:
            self.service.abort()
        # a client that does not read its answer is not waited for
        return end or (self.guard.stopping and (not self.guard.active or late > SECONDS_TO_CLOSE))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs; uvicorn's own version would raise them again."""
        with handle_signals(self.handle_exit, *TERMINATING, signal.SIGINT):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second Ctrl-C does not wait for answers."""
        if sig == signal.SIGINT:
            self.force_exit = self.should_exit = self.interrupted
            self.interrupted = True
        if not self.guard.stopping:
            requests, grace = quantity(self.guard.active, "request"), self.service.limits.grace
            seconds = quantity(grace, "second", "g")
            with contextlib.suppress(OSError):  # the terminal has closed
                print(f"stopping: {requests} to finish within {seconds}", file=sys.stderr)
            self._end_of_grace = time.monotonic() + grace
        self.guard.stopping = True


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 = any free one.

    Raises:
        UserError: there is no such port.
        MachineError: the address is not one of this machine's, or is in use.
    """
    if not 0 <= port <= HIGHEST_PORT:  # getaddrinfo would take the last 16 bits of the number
        raise UserError(
            f"{port} is not a port from 0 to {HIGHEST_PORT}", at="--port", fix="choose another one"
        )
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        what = f"cannot listen on {host}, port {port}: {error.strerror or error}"
        fix = "choose another --port; --host is an address of this machine"
        raise MachineError(what, at="--host, --port", fix=fix) from error


def run(service: Service, opened: socket.socket) -> None:
    """Serve until a signal arrives.

    Raises:
        KeyboardInterrupt: Ctrl-C ended the server.
    """
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # as that of uvicorn
    server = Server(service)
    host, port = opened.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    print(f"serving on http://{host}:{port} (API: /docs); Ctrl-C ends it", file=sys.stderr)
    try:
        server.run(sockets=[opened])
    finally:
        ended = service.close()
    if not ended:  # Python would crash while a thread still computes
        atexit.register(os._exit, 130 if server.interrupted else 0)
    if server.interrupted:
        raise KeyboardInterrupt
