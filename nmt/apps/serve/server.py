"""Run the application with uvicorn, and end it without losing a request."""

from __future__ import annotations

import contextlib
import functools
import signal
import socket
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, cast

import uvicorn

from nmt.apps.serve.app import Service
from nmt.apps.serve.connections import ACCEPTED_AT_ONCE, Connection, Connections, most_connections
from nmt.data.text import quantity
from nmt.errors import MachineError, UserError
from nmt.runtime.signals import TERMINATING, handle_signals

BACKLOG = 2048  # connections that wait to be accepted
SECONDS_TO_CLOSE = 2  # connections, after the last answer
HIGHEST_PORT = 65_535


class Server(uvicorn.Server):
    """A server that answers what it has accepted before it ends, but not for ever.

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
        if time.monotonic() > self._end_of_grace:
            self.service.abort()
        return end or (self.guard.stopping and not self.guard.active)

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
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise MachineError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            at="--host, --port",
            fix="choose another --port; --host is an address of this machine",
        ) from error


def run(service: Service, opened: socket.socket) -> None:
    """Serve until a signal arrives.

    Raises:
        KeyboardInterrupt: Ctrl-C ended the server.
    """
    server = Server(service)
    host, port = opened.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    print(f"serving on http://{host}:{port} (API: /docs); Ctrl-C ends it", file=sys.stderr)
    try:
        server.run(sockets=[opened])
    finally:
        service.close()
    if server.interrupted:
        raise KeyboardInterrupt
