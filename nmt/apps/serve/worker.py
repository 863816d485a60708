"""A process that reads untrusted documents, so that the server can end it at any time.

A small file may need hours or much memory. A separate process does not block the server's
interpreter lock or use its memory. The process translates nothing itself: it sends lines to the
server and receives their translations. Messages are JSON, because the server must not trust them.

The process imports no torch. It starts in a tenth of a second, when the first document comes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nmt.apps.documents.document import count_segments, translate_bytes
from nmt.apps.documents.job import Reading, Remark
from nmt.apps.documents.lines import Link, Phrases, Translate, Translated
from nmt.apps.serve.limits import Refused, stopping
from nmt.errors import UserError
from nmt.runtime.words import quantity

MEMORY = 1 << 30  # bytes of address space
KEPT_MEMORY = 200_000  # kilobytes; a process that had more ends, because it never gives it back
LONGEST = 1e6  # seconds
NICENESS = 5  # requests of text come first
SHOWN = 100  # places to check of a document
START = "import sys; sys.path[:] = {!r}; from nmt.apps.serve.worker import main; main()"


class Worker:
    """The process, as the server sees it; it reads one document at a time.

    Attributes:
        closed: no document is read any more.
    """

    def __init__(self) -> None:
        self.closed = False
        self._process: subprocess.Popen[bytes] | None = None

    def count(self, data: bytes, name: str, langs: tuple[str, str], deadline: float) -> int:
        """Return the number of segments of a document.

        Args:
            deadline: value of ``time.monotonic()`` at which the process is ended.

        Raises:
            Refused: the document is damaged, of another kind, or takes too much time or memory.
        """
        segments: int = self._run(data, name, langs, deadline)[0]["segments"]
        return segments

    def translate(
        self,
        data: bytes,
        name: str,
        langs: tuple[str, str],
        deadline: float,
        translate: Translate,
        most: int,
        abbreviations: Collection[str] = (),
    ) -> tuple[bytes, list[Remark]]:
        """Return a translated document, and the first places that a person must check.

        The other arguments and the errors are those of ``count``.

        Args:
            most: largest size of the translation, in bytes.
            abbreviations: as in ``Reading``.
        """
        answer, result = self._run(data, name, langs, deadline, translate, most, abbreviations)
        return result, [Remark(*remark) for remark in answer["remarks"]]

    def close(self) -> None:
        """End the process; what it reads is refused."""
        self.closed = True
        if self._process is not None:
            self._process.kill()

    def _run(
        self,
        data: bytes,
        name: str,
        langs: tuple[str, str],
        deadline: float,
        translate: Translate | None = None,
        most: int = 0,
        abbreviations: Collection[str] = (),
    ) -> tuple[dict[str, Any], bytes]:
        if self.closed:
            raise stopping()
        seconds = min(max(0.0, deadline - time.monotonic()), LONGEST)
        process = self._started()
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        def ask(message: dict[str, Any], data: bytes = b"") -> tuple[dict[str, Any], bytes]:
            try:
                _send(process.stdin, message, data)
                return _receive(process.stdout, most)
            except (EOFError, OSError, ValueError) as error:  # the process was ended
                if self.closed:
                    raise stopping() from error
                if expired.is_set():
                    raise late(seconds) from error
                raise _too_large() from error

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        answer: dict[str, Any] = {}
        job = {"name": name, "langs": langs, "seconds": seconds, "translate": translate is not None}
        job["abbreviations"] = [*abbreviations]
        try:
            answer, result = ask(job, data)
            while translate is not None and "lines" in answer:
                answer, result = ask({"results": translate(*answer["lines"])})
        finally:
            timer.cancel()
            if answer.get("ends", True) or expired.is_set():
                self._end(process)
        if "error" in answer:
            raise Refused(422, "bad_document", *answer["error"])
        return answer, result

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START.format(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the server, which ends this process itself
            )
            if self.closed:  # in the meantime
                self._process.kill()
        return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        with contextlib.suppress(OSError), process:  # closes the pipes, and waits
            self._process = None


def _send(file: Any, message: dict[str, Any], data: bytes = b"") -> None:
    file.write(json.dumps({**message, "size": len(data)}).encode() + b"\n")
    file.write(data)
    file.flush()


def _receive(file: Any, most: int) -> tuple[dict[str, Any], bytes]:
    """Return a message and its data.

    Raises:
        EOFError: the other process has ended.
        ValueError: there are over ``most`` bytes of data.
    """
    message = json.loads(file.readline() or "null")
    if message is None:
        raise EOFError
    size = message.pop("size")
    if size > most:
        raise ValueError(f"{size:,} bytes")
    return message, file.read(size)


def late(seconds: float) -> Refused:
    """Return the refusal of a document that takes too long."""
    what = f"the document takes longer than {quantity(round(seconds), 'second')}"
    return Refused(504, "timeout", what, "divide it into several parts")


def _too_large() -> Refused:
    what = "the document needs too much memory"
    return Refused(422, "bad_document", what, "divide it into several files")


# ---------------------------------------------------------------- in the process


def main() -> None:
    """Read documents until the server closes standard input."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it may be for all processes of a service
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not a message
    if sys.platform == "linux":
        import resource

        os.nice(NICENESS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    ends = False
    while not ends:
        try:
            job, data = _receive(sys.stdin.buffer, sys.maxsize)
        except EOFError:
            return
        answer, result = _answer(job, data, sys.stdin.buffer, target)
        del data
        ends = _had_much_memory()
        with contextlib.suppress(BrokenPipeError):
            _send(target, {**answer, "ends": ends}, result)


def _had_much_memory() -> bool:
    try:  # getrusage counts the memory of the server, too
        status = Path("/proc/self/status").read_text()
    except OSError:
        return True
    return int(status.partition("VmHWM:")[2].split()[0]) > KEPT_MEMORY


def _answer(
    job: dict[str, Any], data: bytes, source: BinaryIO, target: BinaryIO
) -> tuple[dict[str, Any], bytes]:
    if hasattr(signal, "alarm"):  # if the server was killed, nobody else ends a long document
        signal.alarm(int(job["seconds"]) + 2)
    name, langs = job["name"], (job["langs"][0], job["langs"][1])

    def translate(
        lines: Sequence[str], require: Phrases, align: bool
    ) -> Sequence[Translated] | None:
        _send(target, {"lines": [lines, require, align]})
        results = _receive(source, 0)[0]["results"]
        return None if results is None else [_translated(*line) for line in results]

    try:
        if not job["translate"]:
            return {"segments": count_segments(io.BytesIO(data), name, langs)}, b""
        reading = Reading(abbreviations=tuple(job["abbreviations"]))
        result, report = translate_bytes(data, name, langs, translate, reading)
        return {"remarks": [dataclasses.astuple(r) for r in report.problems[:SHOWN]]}, result
    except UserError as error:
        what = f"{error.at}: {error.what}" if error.at else error.what
        return {"error": [what, error.fix or "send another file"]}, b""
    except (MemoryError, RecursionError):
        refused = _too_large()
        return {"error": [refused.message, refused.fix]}, b""
    except (EOFError, BrokenPipeError):  # the server was killed
        sys.exit()
    except Exception as error:  # of a reader; the operator finds the details here
        print(f"error: a document: {type(error).__name__}: {error}", file=sys.stderr)
        return {"error": ["the document cannot be read", "send another file"]}, b""
    finally:
        if hasattr(signal, "alarm"):
            signal.alarm(0)


def _translated(text: str, links: Any, problem: str, note: str) -> Translated:
    places = None if links is None else [Link(*link) for link in links]
    return Translated(text, places, problem, note)
