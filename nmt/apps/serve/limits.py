"""What the server accepts, and how it refuses the rest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of the server; each has a flag of nmt-serve.

    Attributes:
        body: bytes of a request body.
        lines: lines of one request.
        characters: Unicode code points of one line.
        queue: lines that may wait for one model.
        seconds: from the arrival of a request to its answer.
        beam: beam size, n-best list and candidates of a request.
        work: of one request, as ``ServedModel.work`` computes it.
        grace: seconds after SIGTERM in which accepted requests are answered.
        batch: lines that one model translates together.
        file: bytes of a document.
        file_seconds: of the translation of a document.
    """

    body: int = 1_000_000
    lines: int = 128
    characters: int = 2_000
    queue: int = 1_024
    seconds: float = 30.0
    beam: int = 32
    work: int = 500_000
    grace: float = 10.0
    batch: int = 64
    file: int = 10_000_000
    file_seconds: float = 1_800.0


class Refused(Exception):
    """A request that gets an error as its answer.

    Args:
        status: of HTTP.
        code: a word for programs; it does not change between versions.
        message: what is wrong, for people.
        fix: the next step.
        retry: seconds after which the same request may succeed; None = no time is known.
    """

    def __init__(
        self, status: int, code: str, message: str, fix: str, retry: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.fix = status, code, message, fix
        self.retry = retry
