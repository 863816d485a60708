"""Documents that clients send: each is translated in the background, asked for, and fetched.

A document is in memory until it was not asked for some time. Its lines go through the queue of its
model like those of other requests, so they share batches and get no more than an equal part of it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from nmt.apps.documents.document import count_segments, translate_bytes
from nmt.apps.documents.job import Remark
from nmt.apps.documents.lines import Phrases, Translate, Translated
from nmt.apps.documents.model import Word, linked, translated
from nmt.apps.serve.limits import Limits, Refused
from nmt.apps.serve.model import ServedModel
from nmt.data.glossary import Term
from nmt.errors import UserError

WORKERS = 2  # documents that are translated at the same time
MOST = 20  # documents in memory
KEPT = 120.0  # seconds after its client has last asked for a document
STEP = 0.2  # seconds between two checks that a document is still wanted
BATCHES = 4  # so many batches of lines are queued together
SHOWN = 100  # places to check of a document


@dataclass(eq=False)
class Document:
    """A document, with its translation in the end.

    Attributes:
        data: its content, and in the end that of the translation.
        segments: number of texts in it.
        lines: number of lines that are translated; texts that occur twice are one line.
        asked: when its client last asked for it.
    """

    name: str
    data: bytes
    model: ServedModel
    langs: tuple[str, str]
    options: dict[str, Any]
    segments: int = 0
    lines: int = 0
    remarks: Sequence[Remark] = ()
    state: Literal["waiting", "translating", "finished", "failed"] = "waiting"
    error: Refused | None = None
    asked: float = field(default_factory=time.monotonic)

    def description(self) -> dict[str, Any]:
        """Return what a client needs to know, as JSON values."""
        places = [
            {"place": r.place, "problem": r.problem, "source": r.source, "text": r.translation}
            for r in self.remarks[:SHOWN]
        ]
        return {
            "name": self.name,
            "state": self.state,
            "segments": self.segments,
            "translated": self.segments if self.state == "finished" else self.lines,
            "to_check": places,
            "error": self.error and self.error.message,
        }


class Documents:
    """The documents of a server.

    Args:
        glossary: terms for documents that do not have a glossary.
    """

    def __init__(self, limits: Limits, glossary: Sequence[Term] = ()) -> None:
        self.limits, self.glossary = limits, glossary
        self._documents: dict[str, Document] = {}
        self._waiting: queue.SimpleQueue[Document] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        for _ in range(WORKERS):
            threading.Thread(target=self._work, name="nmt-documents", daemon=True).start()

    def add(self, document: Document) -> str:
        """Read a document, and translate it in the background; return its ID, which is secret.

        Raises:
            Refused: it is damaged or of another kind, or too many documents are in memory.
        """
        document.name = PurePath(document.name.replace("\\", "/")).name
        with _refused_user_errors():
            source = io.BytesIO(document.data)
            document.segments = count_segments(source, document.name, document.langs)
        with self._lock:
            self._forget()
            if len(self._documents) >= MOST:
                what = f"{MOST} documents are being translated or fetched"
                raise Refused(429, "queue_full", what, "send the document again later", retry=10)
            name = secrets.token_urlsafe()
            self._documents[name] = document
        self._waiting.put(document)
        return name

    def get(self, name: str) -> Document:
        """Return a document.

        Raises:
            Refused: there is none with this ID, or not any more.
        """
        with self._lock:
            self._forget()
            if name not in self._documents:
                what = "the server does not have this document"
                fix = f"send it again, and fetch it within {KEPT:g} seconds"
                raise Refused(404, "no_such_document", what, fix)
            document = self._documents[name]
            document.asked = time.monotonic()
            return document

    def translate(self, document: Document, seconds: float) -> None:
        """Translate a document now, unless nobody wants it any more.

        Raises:
            Refused: it is damaged, or takes longer than ``seconds``.
        """
        deadline = time.monotonic() + seconds
        if self.glossary:
            document.options.setdefault("glossary", self.glossary)

        def stop() -> None:
            now = time.monotonic()
            if self._closed or now > document.asked + max(KEPT, self.limits.seconds):
                raise Refused(503, "stopping", "nobody waits for the document", "send it again")
            if now > deadline:
                what = f"the document takes longer than {seconds:g} seconds"
                raise Refused(504, "timeout", what, "divide it into several files")

        translate = _through_queue(document, self.limits, stop)
        with _refused_user_errors():
            data, name = document.data, document.name
            document.data, report = translate_bytes(data, name, document.langs, translate)
        document.remarks = report.problems

    def close(self) -> None:
        """End the translations."""
        self._closed = True

    def _forget(self) -> None:
        oldest = time.monotonic() - KEPT
        self._documents = {k: one for k, one in self._documents.items() if one.asked > oldest}

    def _work(self) -> None:
        while True:
            document = self._waiting.get()
            document.state = "translating"
            try:
                self.translate(document, self.limits.file_seconds)
                document.state = "finished"
            except Exception as error:
                if not isinstance(error, Refused):  # the operator finds the details here
                    print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
                    what, fix = "the translation failed", "ask the operator of the server"
                    error = Refused(500, "failed", what, fix)
                document.error, document.state, document.data = error, "failed", b""


@contextlib.contextmanager
def _refused_user_errors() -> Iterator[None]:
    try:
        yield
    except UserError as error:
        what = f"{error.at}: {error.what}" if error.at else error.what
        raise Refused(422, "bad_document", what, error.fix or "send another file") from error


def _through_queue(document: Document, limits: Limits, stop: Callable[[], None]) -> Translate:
    """Return a function that translates lines of a document in the queue of its model."""
    model, size = document.model, BATCHES * limits.batch

    def search(lines: Sequence[str], options: dict[str, Any]) -> list[dict[str, Any]]:
        while True:
            stop()
            try:
                future = model.submit(lines, options)
            except Refused:  # the queue is full
                time.sleep(1)
                continue
            try:
                while True:
                    with contextlib.suppress(concurrent.futures.TimeoutError):
                        return future.result(timeout=STEP)
                    stop()
            finally:
                future.cancel()  # no effect on one that is done

    def translate(
        lines: Sequence[str], require: Phrases, align: bool
    ) -> Sequence[Translated] | None:
        if require is not None and not model.require:
            return None
        found: list[Translated] = []
        for start in range(0, len(lines), size):
            some = lines[start : start + size]
            options = dict(document.options)
            if require is not None:
                options |= {"stop_rule": "bound", "require": [*require[start : start + size]]}
            if align and model.align:
                options["align"] = True
            found += [_translated(one, "align" in options) for one in search(some, options)]
            document.lines = min(document.segments, document.lines + len(some))
        return found

    return translate


def _translated(result: dict[str, Any], aligned: bool) -> Translated:
    best = result["translations"][0]
    links = None
    if aligned:
        sources, targets = (
            [Word(**word) for word in words] for words in (result["source_words"], best["words"])
        )
        links = linked(best["alignment"], sources, targets)
    return translated(best["text"], best["short"], best["finished"], links)
