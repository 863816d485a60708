"""Clients' documents: each is translated in the background, polled, and fetched.

A document stays in memory until it has not been polled for some time. Its lines go through the
queue of its model like those of other requests, so they share batches and get no more than an equal
part of it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from nmt.apps.documents.job import Remark
from nmt.apps.documents.lines import NOT_TRANSLATED, Link, Phrases, Translate, Translated
from nmt.apps.documents.model import Word, linked, translated
from nmt.apps.serve.limits import Limits, Refused, stopping
from nmt.apps.serve.model import ServedModel
from nmt.apps.serve.worker import Worker, late
from nmt.decoding.options import SearchOptions
from nmt.runtime.words import quantity

WORKERS = 2  # documents that are translated at the same time
READERS = 4  # and others that are read, or translated while their client waits
MOST = 20  # documents in memory
KEPT = 120.0  # seconds after its client has last asked for a document
STEP = 0.2  # seconds between two checks that a document is still wanted
BATCHES = 4  # so many batches of lines are queued together
GROWTH = 10  # a translation has at most so many times the bytes that a document may have


@dataclass(eq=False)
class Document:
    """A document, with its translation in the end.

    Attributes:
        data: its content, and in the end that of the translation.
        segments: number of texts in it.
        lines: number of lines that are translated; texts that occur twice are one line.
        asked: when its client last asked for it.
        unwanted: whether its client has gone.
        done: the future of its translation in the background.
    """

    name: str
    data: bytes
    model: ServedModel
    options: SearchOptions
    segments: int = 0
    lines: int = 0
    remarks: Sequence[Remark] = ()
    state: Literal["waiting", "translating", "finished", "failed"] = "waiting"
    error: Refused | None = None
    asked: float = field(default_factory=time.monotonic)
    unwanted: bool = False
    done: Future[None] = field(default_factory=Future)

    @property
    def langs(self) -> tuple[str, str]:
        """Its language and that of the translation."""
        return self.model.translator.codec.langs(self.options)

    def description(self) -> dict[str, Any]:
        """Return the state of the document for its client, as JSON values."""
        places = [
            {"place": r.place, "problem": r.problem, "source": r.source, "text": r.translation}
            for r in self.remarks
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
    """The documents of a server, which ``Worker`` processes read."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._documents: dict[str, Document] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._now = ThreadPoolExecutor(READERS, "nmt-readers")
        self._later = ThreadPoolExecutor(WORKERS, "nmt-documents")
        self._workers = [Worker() for _ in range(READERS + WORKERS)]
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()  # the last one has its process
        for worker in self._workers:
            self._idle.put(worker)

    def add(self, document: Document, deadline: float) -> Future[str]:
        """Read a document, then translate it in the background.

        Returns:
            The future of its ID, which is secret, as soon as it is read. It may raise ``Refused``:
            the document is damaged or of another kind, or too many documents are in memory.
        """
        return self._now.submit(self._add, document, deadline)

    def translate(self, pages: Sequence[Document], deadline: float) -> Future[None]:
        """Translate documents now, all until a value of ``time.monotonic()``."""
        return self._now.submit(self._translate, pages, deadline)

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

    def close(self) -> None:
        """End the translations, and the processes."""
        self._closed = True
        for worker in self._workers:
            worker.close()

    def _add(self, document: Document, deadline: float) -> str:
        document.name = PurePath(document.name.replace("\\", "/")).name
        with self._worker() as worker:
            document.segments = worker.count(document.data, document.name, document.langs, deadline)
        with self._lock:
            self._forget()
            if len(self._documents) >= MOST:
                what = f"{MOST} documents are being translated or fetched"
                raise Refused(429, "queue_full", what, "send the document again later", retry=10)
            name = secrets.token_urlsafe()
            self._documents[name] = document
            document.done = self._later.submit(self._work, document)
        return name

    def _forget(self) -> None:
        oldest = time.monotonic() - KEPT
        self._documents = {k: one for k, one in self._documents.items() if one.asked > oldest}

    def _work(self, document: Document) -> None:
        document.state = "translating"
        try:
            self._translate([document], time.monotonic() + self.limits.file_seconds)
            document.state = "finished"
        except Exception as error:
            if not isinstance(error, Refused):  # the operator finds the details here
                print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
                what, fix = "the translation failed", "ask the operator of the server"
                error = Refused(500, "failed", what, fix)
            document.error, document.state, document.data = error, "failed", b""

    def _translate(self, documents: Sequence[Document], deadline: float) -> None:
        seconds = deadline - time.monotonic()
        with self._worker() as worker:
            for document in documents:
                stop = functools.partial(self._check_wanted, document, deadline, seconds)
                document.data, document.remarks = worker.translate(
                    document.data,
                    document.name,
                    document.langs,
                    deadline,
                    _through_queue(document, self.limits, stop),
                    GROWTH * self.limits.file,
                    document.model.translator.codec.abbreviations(document.langs[0]),
                )

    def _check_wanted(self, document: Document, deadline: float, seconds: float) -> None:
        now = time.monotonic()
        if now > deadline:
            raise late(seconds)
        if self._closed:
            raise stopping()
        if document.unwanted or now > document.asked + max(KEPT, self.limits.seconds):
            raise Refused(
                503, "stopping", "the document was not polled for too long", "send it again"
            )

    @contextlib.contextmanager
    def _worker(self) -> Iterator[Worker]:
        worker = self._idle.get()
        try:
            yield worker
        finally:
            self._idle.put(worker)


def _through_queue(document: Document, limits: Limits, stop: Callable[[], None]) -> Translate:
    """Return a function that translates lines of a document in the queue of its model."""
    model, size = document.model, BATCHES * limits.batch

    def search(
        lines: Sequence[str], options: SearchOptions, require: Phrases
    ) -> list[dict[str, Any]]:
        while True:
            stop()
            try:
                future = model.submit(lines, options, require)
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
        found: dict[int, Translated] = {}
        options = document.options.model_copy(update={"align": align})
        most = limits.characters  # the time to segment a line grows faster than its length
        short = [index for index, line in enumerate(lines) if len(line) <= most]
        for start in range(0, len(short), size):
            some = short[start : start + size]
            phrases = require and [require[index] for index in some]
            results = search([lines[index] for index in some], options, phrases)
            for index, result in zip(some, results, strict=True):
                found[index] = _translated(result, align)
            document.lines = min(document.segments, document.lines + len(some))
        too_long = f"{NOT_TRANSLATED}: a sentence of over {quantity(most, 'character')}"
        return [
            found.get(index) or Translated(line, [Link(0, len(line), 0, len(line))], too_long)
            for index, line in enumerate(lines)
        ]

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
