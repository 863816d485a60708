"""Limit the connections of the server: their number, and how long each may wait for a request.

It works before a request is read, so it also protects a server that requires a key. Each process
may have a limited number of open files, and a connection is one. Without a descriptor left, no
connection can be accepted. So the server keeps fewer connections. A new one displaces the one that
has waited for a request for the longest time, because that is the least likely to send one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

from nmt.apps.serve.guard import CONNECTION

MOST_CONNECTIONS = 1_000
ACCEPTED_AT_ONCE = 32  # connections, before the first of them is counted
RESERVED = 4 * ACCEPTED_AT_ONCE  # descriptors for these, and for files
SECONDS_TO_SEND_HEADERS = 10.0  # also between two requests
SECONDS_TO_READ = 30.0  # an answer, after the longest time of a translation
SECONDS_BETWEEN_NOTES = 60.0


def most_connections() -> int:
    """Return how many connections this process can have, and raise its soft limit for them."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    wanted = used + RESERVED + MOST_CONNECTIONS
    allowed = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(1, allowed - used - RESERVED)


class Connections:
    """All connections of a server.

    Args:
        most: number of connections.
        answer_seconds: the longest time that a request may take.
    """

    def __init__(self, most: int, answer_seconds: float) -> None:
        self.most, self.answer_seconds = most, answer_seconds
        # in the order in which they began to wait; a dict keeps the order
        self.waiting: dict[Connection, None] = {}
        self.busy: set[Connection] = set()
        self._noted = -SECONDS_BETWEEN_NOTES

    def make_room(self) -> None:
        """Close the connection that has waited longest, if there are too many."""
        if len(self.waiting) + len(self.busy) <= self.most:
            return
        next(iter(self.waiting)).abort()
        if time.monotonic() >= self._noted + SECONDS_BETWEEN_NOTES:
            self._noted = time.monotonic()
            print(
                f"note: {self.most:,} connections are open, the most that this server keeps; a new "
                "one closes the one that has waited longest for a request",
                file=sys.stderr,
            )


class Connection(asyncio.Protocol):
    """Passes the events of a connection to uvicorn, and ends the connection when time is over.

    As a context, it is the time in which a request is answered.

    Args:
        all_connections: this one joins them.
        config, server_state, app_state, _loop: of uvicorn, which calls a protocol with them.
    """

    def __init__(
        self,
        all_connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._all = all_connections
        self._loop = _loop or asyncio.get_running_loop()
        state = {**app_state, CONNECTION: self}
        self._http = AutoHTTPProtocol(  # type: ignore[call-arg]
            config=config, server_state=server_state, app_state=state, _loop=self._loop
        )
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        self._transport = cast(asyncio.Transport, transport)
        self._http.connection_made(self._transport)
        self._wait()
        self._all.make_room()

    def data_received(self, data: bytes) -> None:
        """Pass data to uvicorn."""
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the end of the data to uvicorn."""
        return self._http.eof_received()

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
        if self._transport is not None:
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
