"""Checks of each HTTP request before the application sees it: host, key, size, time, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import re

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.apps.serve.form import read_fields, refusal, wants_text
from nmt.apps.serve.limits import Limits, Refused, stopping

# without a key: they contain no data; clients of LibreTranslate read the languages first
OPEN_PATHS = {"/", "/docs", "/openapi.json", "/health", "/languages"}
FILE_PATHS = {"/documents", "/translate_file"}
WORKING_PATHS = {"/translate", "/suggest", *FILE_PATHS}  # the server ends after their answers
TRANSLATED = re.compile("/documents/[^/]+/file")  # its secret ID is a key
SECONDS_TO_START = 1.0  # of a body that is too large: its start tells the form of the answer
SECONDS_TO_SEND_BODY, SECONDS_TO_SEND_FILE = 10.0, 60.0
MOST_FILES = 8  # requests with a document at the same time
CONNECTION = "connection"  # key of the state of a request: the context in which it is answered


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_of(site: str) -> str:
    """Return the host of ``host:port``, without the brackets of an address of IPv6."""
    host = site if site.endswith("]") else site.rpartition(":")[0] or site
    return host.removeprefix("[").removesuffix("]")


class Guard:
    """ASGI middleware that refuses what the limits do not allow.

    Without a key, only requests whose Host header names this machine are answered. Otherwise a web
    page from elsewhere could use the server through its visitor's browser (DNS rebinding). For the
    same reason, a page of another machine cannot send a request (Origin).

    A key may be a header, or ``api_key`` of a body, as LibreTranslate's clients send it.

    Attributes:
        stopping: refuse new translations.
        active: translations that were accepted and are not answered yet.
        files: requests with a document that are not answered yet.
    """

    def __init__(self, app: ASGIApp, limits: Limits, key: str | None) -> None:
        self.app, self.limits = app, limits
        self._key = None if key is None else key.encode()
        self.stopping, self.active, self.files = False, 0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the application with its complete body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with scope.get("state", {}).get(CONNECTION, contextlib.nullcontext()):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        translates = scope["path"] in WORKING_PATHS
        try:
            self._check_host(headers)
            is_open = scope["path"] in OPEN_PATHS or TRANSLATED.fullmatch(scope["path"])
            has_key = bool(is_open) or self._has_key(headers)
            if not (has_key or translates):
                raise _wrong_key()
            if translates and self.stopping:
                raise stopping()
            sends_file = scope["path"] in FILE_PATHS
            if sends_file and self.files >= MOST_FILES:
                what, fix = "too many documents are being sent", "send it again later"
                raise Refused(429, "queue_full", what, fix, retry=1)
            self.active += translates
            self.files += sends_file
            try:
                body = await self._body(headers, receive, sends_file)
                if not has_key and not await self._body_has_key(scope, body, receive):
                    raise _wrong_key()
                await self.app(scope, _replay(body, receive), send)
            finally:
                self.active -= translates
                self.files -= sends_file
        except Refused as refused:
            response = refusal(refused, wants_text(scope["path"], refused.body))
            response.headers["Connection"] = "close"  # what remains of the request is not read
            await response(scope, receive, send)

    def _check_host(self, headers: dict[str, bytes]) -> None:
        """Without a key, refuse what other machines or their pages send."""
        if self._key is not None:
            return
        name = _host_of(headers.get("host", b"").decode("latin-1"))
        if not is_loopback(name):
            what = f"the server answers requests to localhost only, not to {name!r}"
            fix = "open it as http://localhost:PORT, or start nmt-serve with an API key"
            raise Refused(421, "wrong_host", what, fix)
        origin = headers.get("origin", b"").decode("latin-1")
        scheme, _, site = origin.partition("://")
        is_page = origin and not scheme.endswith("-extension")  # which the user has installed
        if is_page and not is_loopback(_host_of(site)):
            what = f"pages of {origin!r} may not use the server"
            fix = "use its own page, or start nmt-serve with an API key"
            raise Refused(403, "wrong_origin", what, fix)

    def _has_key(self, headers: dict[str, bytes]) -> bool:
        kind, _, token = headers.get("authorization", b"").partition(b" ")
        given = token.strip() if kind.lower() == b"bearer" else headers.get("x-api-key", b"")
        return self._key is None or hmac.compare_digest(given, self._key)

    async def _body_has_key(self, scope: Scope, body: bytes, receive: Receive) -> bool:
        assert self._key is not None
        fields = await read_fields(Request(scope, _replay(body, receive)))
        given = fields.get("api_key")
        if not isinstance(given, str):
            return False
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._key)

    async def _body(self, headers: dict[str, bytes], receive: Receive, is_file: bool) -> bytes:
        most = self.limits.file if is_file else self.limits.body
        seconds = SECONDS_TO_SEND_FILE if is_file else SECONDS_TO_SEND_BODY
        length = headers.get("content-length", b"0")
        # Python converts numbers of some thousand digits at most
        if length.isdigit() and (len(length) > len(str(most)) or int(length) > most):
            raise _too_large(most, await _start(receive))
        try:
            return await asyncio.wait_for(_receive_body(receive, most), seconds)
        except asyncio.TimeoutError:
            what = f"the body did not arrive within {seconds:g} seconds"
            fix = "check the connection, and send the request again"
            raise Refused(408, "slow_body", what, fix) from None


async def _receive_body(receive: Receive, most: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most, bytes(body))
        if not message.get("more_body"):
            return bytes(body)


async def _start(receive: Receive) -> bytes:
    """Return the start of a body, or nothing if it does not arrive soon."""
    with contextlib.suppress(asyncio.TimeoutError):
        message = await asyncio.wait_for(receive(), SECONDS_TO_START)
        return bytes(message.get("body", b""))
    return b""


def _too_large(most: int, body: bytes) -> Refused:
    what, fix = f"the body has more than {most:,} bytes", "send the text in several requests"
    return Refused(413, "body_too_large", what, fix, body=body)


def _wrong_key() -> Refused:
    what, fix = "the API key is missing or wrong", "send the header 'Authorization: Bearer KEY'"
    return Refused(401, "wrong_key", what, fix)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a complete body first, then what follows it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed
