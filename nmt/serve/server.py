"""Run the application with uvicorn, and end it without losing a request."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Iterator
from types import FrameType

import uvicorn

from nmt.data.text import quantity
from nmt.errors import MachineError, UserError
from nmt.runtime.signals import handle_signals
from nmt.serve.app import Service

BACKLOG = 2048  # connections that wait to be accepted
HIGHEST_PORT = 65_535


class Server(uvicorn.Server):
    """A server that answers what it has accepted before it ends.

    SIGTERM and Ctrl-C stop it: new translations get status 503, and the server ends when the
    accepted ones are answered. A second Ctrl-C ends it at once.

    Attributes:
        interrupted: whether Ctrl-C stopped it.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                service.guard, log_level="warning", access_log=False, server_header=False
            )
        )
        self.guard = service.guard
        self.interrupted = False

    async def on_tick(self, counter: int) -> bool:
        """Return whether the server ends now; called ten times a second."""
        end = await super().on_tick(counter)
        return end or (self.guard.stopping and not self.guard.active)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs; uvicorn's own version would raise them again."""
        with handle_signals(self.handle_exit, signal.SIGTERM, signal.SIGINT):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second Ctrl-C does not wait for answers."""
        if sig == signal.SIGINT:
            self.force_exit = self.should_exit = self.interrupted
            self.interrupted = True
        if not self.guard.stopping:
            requests = quantity(self.guard.active, "request")
            print(f"stopping: {requests} to finish first", file=sys.stderr)
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
