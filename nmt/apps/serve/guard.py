"""Checks of each HTTP request before the application sees it: host, key, size, time, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.apps.serve.limits import Limits, Refused

OPEN_PATHS = {"/", "/docs", "/openapi.json", "/health"}  # without a key: they contain no data
SECONDS_TO_SEND_BODY = 10.0
CONNECTION = "connection"  # key of the state of a request: the context in which it is answered


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Guard:
    """ASGI middleware that refuses what the limits do not allow.

    Without a key, only requests whose Host header names this machine are answered. Otherwise a web
    page from elsewhere could use the server through its visitor's browser (DNS rebinding).

    Attributes:
        stopping: refuse new translations.
        active: translations that were accepted and are not answered yet.
    """

    def __init__(self, app: ASGIApp, limits: Limits, key: str | None) -> None:
        self.app, self.limits = app, limits
        self._key = None if key is None else key.encode()
        self.stopping, self.active = False, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the application with its complete body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with scope.get("state", {}).get(CONNECTION, contextlib.nullcontext()):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        translates = scope["path"] == "/translate"
        try:
            self._check(scope["path"], headers)
            if translates and self.stopping:
                raise stopping()
            self.active += translates
            try:
                body = await self._body(headers, receive)
                await self.app(scope, _replay(body, receive), send)
            finally:
                self.active -= translates
        except Refused as refused:
            response = answer(refused)
            response.headers["Connection"] = "close"  # what remains of the request is not read
            await response(scope, receive, send)

    def _check(self, path: str, headers: dict[str, bytes]) -> None:
        if self._key is None:
            host = headers.get("host", b"").decode("latin-1")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if not is_loopback(name.removeprefix("[").removesuffix("]")):
                raise Refused(
                    421,
                    "wrong_host",
                    f"the server answers requests to localhost only, not to {name!r}",
                    "open it as http://localhost:PORT, or start nmt-serve with an API key",
                )
            return
        if path in OPEN_PATHS:
            return
        kind, _, token = headers.get("authorization", b"").partition(b" ")
        given = token.strip() if kind.lower() == b"bearer" else headers.get("x-api-key", b"")
        if not hmac.compare_digest(given, self._key):
            raise Refused(
                401,
                "wrong_key",
                "the API key is missing or wrong",
                "send the header 'Authorization: Bearer KEY'",
            )

    async def _body(self, headers: dict[str, bytes], receive: Receive) -> bytes:
        length = headers.get("content-length", b"0")
        if length.isdigit() and int(length) > self.limits.body:
            raise self._too_large()
        try:
            return await asyncio.wait_for(self._receive_body(receive), SECONDS_TO_SEND_BODY)
        except asyncio.TimeoutError:
            raise Refused(
                408,
                "slow_body",
                f"the body did not arrive within {SECONDS_TO_SEND_BODY:g} seconds",
                "check the connection, and send the request again",
            ) from None

    async def _receive_body(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.limits.body:
                raise self._too_large()
            if not message.get("more_body"):
                return bytes(body)

    def _too_large(self) -> Refused:
        return Refused(
            413,
            "body_too_large",
            f"the body has more than {self.limits.body:,} bytes",
            "send the text in several requests",
        )


def stopping() -> Refused:
    """Return the answer to translations that a server which shuts down does not finish."""
    return Refused(
        503,
        "stopping",
        "the server is shutting down",
        "send the request again later, or to another server",
        retry=5,
    )


def answer(refused: Refused) -> Response:
    """Return the JSON answer to a refused request."""
    headers = {} if refused.retry is None else {"Retry-After": str(refused.retry)}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    error = {"code": refused.code, "message": refused.message, "fix": refused.fix}
    # in ASCII: a message may quote a surrogate of the request, which UTF-8 cannot represent
    body = json.dumps({"error": error})
    return Response(body, refused.status, headers, media_type="application/json")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a complete body first, then what follows it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed
