"""The limits of the server, and the refusal of requests that exceed them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _limit(default: float, flag: str, unit: str, meaning: str) -> Any:
    """Return a field with its flag of nmt-serve."""
    return field(default=default, metadata={"flag": flag, "unit": unit, "meaning": meaning})


@dataclass(frozen=True)
class Limits:
    """Limits of the server; each has a flag of nmt-serve. A character is a Unicode code point."""

    body: int = _limit(1_000_000, "--max-body", "BYTES", "maximum size of a request")
    lines: int = _limit(128, "--max-lines", "N", "maximum number of lines in a request")
    characters: int = _limit(2_000, "--max-chars", "N", "maximum number of characters in a line")
    queue: int = _limit(1_024, "--max-queue", "N", "maximum number of lines that wait for a model")
    seconds: float = _limit(
        30.0, "--timeout", "SECONDS", "maximum time from a request to its answer"
    )
    beam: int = _limit(32, "--max-beam", "N", "maximum beam and n-best list of a request")
    work: int = _limit(  # see ServedModel.work
        500_000,
        "--max-work",
        "N",
        "maximum of (characters + max_len_offset) x hypotheses, added over the lines of a request",
    )
    grace: float = _limit(
        10.0,
        "--grace",
        "SECONDS",
        "time after SIGTERM or Ctrl-C in which accepted requests are answered",
    )
    batch: int = _limit(64, "--batch-lines", "N", "maximum number of lines in a batch")
    file: int = _limit(10_000_000, "--max-file", "BYTES", "maximum size of a document")
    file_seconds: float = _limit(
        1_800.0, "--file-timeout", "SECONDS", "maximum time for a document"
    )


class Refused(Exception):
    """A request that gets an error as its answer.

    Args:
        code: a word for programs; it does not change between versions.
        retry: seconds after which the same request may succeed; None = no time is known.
        body: the start of a body that was not read to its end.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        fix: str,
        retry: int | None = None,
        body: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.fix = status, code, message, fix
        self.retry, self.body = retry, body


def stopping() -> Refused:
    """Return the answer to unfinished translations when the server shuts down."""
    what, fix = "the server is shutting down", "send the request again later, or to another server"
    return Refused(503, "stopping", what, fix, retry=5)
