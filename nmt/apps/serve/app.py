"""The HTTP application: its routes, its metrics, and the form of its errors."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import hashlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from nmt.apps.documents.formats import FORMATS
from nmt.apps.serve import libretranslate
from nmt.apps.serve.corrections import CorrectionsFile
from nmt.apps.serve.documents import Document, Documents
from nmt.apps.serve.form import (
    FORM_TYPES,
    bad_option,
    read,
    read_fields,
    refusal,
    reply,
    wants_text,
)
from nmt.apps.serve.guard import Guard, stopping
from nmt.apps.serve.libretranslate import (
    LanguageDescription,
    LibreTranslateFile,
    LibreTranslateRequest,
    Success,
    Suggestion,
    TranslatedFile,
)
from nmt.apps.serve.limits import Limits, Refused
from nmt.apps.serve.model import ServedModel
from nmt.apps.serve.schema import (
    OPTIONS,
    PER_BEAM,
    DocumentAnswer,
    DocumentDescription,
    DocumentRequest,
    Health,
    ModelsResponse,
    Problem,
    TranslateRequest,
    TranslateResponse,
    problems_of,
)
from nmt.data.glossary import Term
from nmt.data.lines import is_blank
from nmt.decoding.options import SearchOptions
from nmt.decoding.translator import Translator
from nmt.errors import MachineError, UserError
from nmt.runtime.words import quantity
from nmt.version import __version__

Result = TypeVar("Result")
STATIC = Path(__file__).with_name("static")
DISCONNECT_INTERVAL = 0.2  # seconds between two checks that the client is connected
SECONDS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LINES_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        401: "the API key is missing or wrong",
        403: "the server does not store corrections, or a page of another site sent the request",
        404: "no such model or document",
        413: "the body is too large",
        422: "the text or an option is not allowed",
        429: "too many lines wait",
        503: "the server is shutting down",
        504: "the translation took too long",
    }.items()
}


class Metrics:
    """The numbers of GET /metrics, in the format of Prometheus. They contain no text.

    Args:
        waiting: returns the lines that wait for each model.
        active: returns the number of requests that are not answered yet.
    """

    def __init__(self, waiting: Callable[[], dict[str, int]], active: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        counter = functools.partial(Counter, registry=self.registry)
        gauge = functools.partial(Gauge, registry=self.registry)
        histogram = functools.partial(Histogram, registry=self.registry)
        self.requests = counter("nmt_requests", "requests to translate", ("model", "status"))
        self.seconds = histogram(
            "nmt_request_seconds",
            "time from the arrival of a request to its answer",
            ("model",),
            buckets=SECONDS_BUCKETS,
        )
        self.lines = counter("nmt_lines", "translated lines", ("model",))
        self.batches = histogram(
            "nmt_batch_lines",
            "lines that were translated together",
            ("model",),
            buckets=LINES_BUCKETS,
        )
        self._queue = gauge("nmt_queue_lines", "lines that wait", ("model",))
        gauge("nmt_active_requests", "accepted and not answered yet").set_function(active)
        self._waiting = waiting

    def observe_batch(self, model: str, lines: int) -> None:
        """Count a batch."""
        self.batches.labels(model).observe(lines)
        self.lines.labels(model).inc(lines)

    def text(self) -> bytes:
        """Return all numbers as Prometheus reads them."""
        for model, lines in self._waiting().items():
            self._queue.labels(model).set(lines)
        return generate_latest(self.registry)


class Service:
    """The application and the models behind it.

    Args:
        translators: by name, in the order of GET /models.
        key: that requests must have; None = requests from this machine only.
        glossary: terms for requests that do not have a glossary.
        corrections: file to which better translations are appended; None = they are refused.

    Attributes:
        guard: the ASGI application.
    """

    def __init__(
        self,
        translators: dict[str, Translator],
        limits: Limits = Limits(),  # noqa: B008, frozen
        key: str | None = None,
        glossary: Sequence[Term] = (),
        corrections: CorrectionsFile | None = None,
    ) -> None:
        self.limits, self.glossary, self.corrections = limits, glossary, corrections
        self.metrics = Metrics(self._waiting, lambda: self.guard.active)
        self.models = {
            name: ServedModel(
                name, translator, limits, functools.partial(self.metrics.observe_batch, name)
            )
            for name, translator in translators.items()
        }
        self.documents = Documents(limits)
        self.guard = Guard(self._app(), limits, key)

    def abort(self) -> None:
        """Answer all requests that wait for a model with status 503, and end their searches."""
        refused = stopping()
        self.documents.close()
        for model in self.models.values():
            model.batcher.abort(refused)

    def close(self) -> bool:
        """End the threads of documents and models; return whether those of models have ended."""
        self.documents.close()
        ended = [model.batcher.close() for model in self.models.values()]
        return all(ended)

    def _waiting(self) -> dict[str, int]:
        return {name: model.batcher.waiting for name, model in self.models.items()}

    def _app(self) -> FastAPI:
        # FastAPI's own documentation pages load scripts from another server
        app = FastAPI(
            title="nmt-serve",
            version=__version__,
            description="Translate text with models of nmt.",
            docs_url=None,
            redoc_url=None,
        )
        for path, file in (("/", "index.html"), ("/docs", "docs.html")):
            app.get(path, include_in_schema=False)(page(STATIC / file))
        get = functools.partial(app.get, response_model=None)
        get("/health", responses={200: {"model": Health}, 503: {"model": Health}})(self.health)
        get("/models", responses={200: {"model": ModelsResponse}})(self.list_models)
        get("/metrics", response_class=Response)(self.show_metrics)
        get("/languages", responses={200: {"model": list[LanguageDescription]}})(
            self.list_languages
        )
        add = functools.partial(app.router.add_api_route, methods=["POST"], response_model=None)
        add(
            "/suggest",
            self.suggest,
            responses={200: {"model": Success}, **ERRORS},
            openapi_extra=libretranslate.body_of(Suggestion, "application/json"),
        )
        add(
            "/documents",
            self.send_document,
            status_code=202,
            responses={202: {"model": DocumentAnswer}, **ERRORS},
            openapi_extra=libretranslate.body_of(DocumentRequest, FORM_TYPES[1]),
        )
        get("/documents/{name}", responses={200: {"model": DocumentDescription}, **ERRORS})(
            self.ask_document
        )
        get("/documents/{name}/file", response_class=Response, responses=ERRORS)(
            self.fetch_document
        )
        add(
            "/translate_file",
            self.translate_file,
            responses={200: {"model": TranslatedFile}},
            openapi_extra=libretranslate.body_of(LibreTranslateFile, FORM_TYPES[1]),
        )
        add(
            "/translate",
            self.translate,
            responses={200: {"model": TranslateResponse}, **ERRORS},
            openapi_extra=libretranslate.body_of(LibreTranslateRequest, FORM_TYPES[0]),
            route_class_override=libretranslate.route_of_both_forms(self),
        )
        app.exception_handler(Refused)(_refused)
        app.exception_handler(UserError)(_bad_option)
        app.exception_handler(RequestValidationError)(_invalid)
        app.exception_handler(HTTPException)(_http_error)
        return app

    async def health(self) -> Response:
        """Return whether the server accepts translations: 200, or 503 while it shuts down."""
        ends = self.guard.stopping
        body = {"status": "stopping" if ends else "ok", "version": __version__}
        return reply(body, 503 if ends else 200)

    async def list_models(self) -> Response:
        """Return the served models and the limits of a request."""
        models = [model.description() for model in self.models.values()]
        return reply(
            {
                "models": models,
                "limits": dataclasses.asdict(self.limits),
                "corrections": self.corrections is not None,
                "formats": list(FORMATS),
            }
        )

    async def show_metrics(self) -> Response:
        """Return counters and times in the format of Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def list_languages(self) -> Response:
        """Return the languages from which the models translate, as LibreTranslate lists them."""
        return reply(libretranslate.languages(self.models))

    async def suggest(self, request: Request) -> Response:
        """Store a better translation, from which a model can learn later."""
        if self.corrections is None:
            what = "this server does not store corrections"
            raise Refused(403, "no_corrections", what, "start nmt-serve with --corrections FILE")
        suggestion = read(Suggestion, await read_fields(request))
        texts = [suggestion.q, suggestion.shown, suggestion.s]
        for text in texts:
            self._lines([text])
        if is_blank(suggestion.q) or is_blank(suggestion.s):
            raise Refused(422, "bad_request", "a text is blank", "send q and s with text")
        model, direction = libretranslate.find_direction(
            self.models, suggestion.source, suggestion.target, suggestion.model
        )
        row = [*texts, *direction.langs, model.name]
        try:
            await asyncio.to_thread(self.corrections.append, row)
        except (UserError, MachineError) as error:
            print(f"error: {error}", file=sys.stderr)
            what, fix = "the correction was not stored", "ask the operator of the server"
            raise Refused(500, "failed", what, fix) from error
        return reply({"success": True})

    async def send_document(self, request: Request) -> Response:
        """Begin to translate a document; the answer has the ID to ask for it."""
        form = read(DocumentRequest, await read_fields(request))
        model = self._model(form.model)
        chosen = form.model_dump(include={"tgt_tag", "glossary"}, exclude_none=True)
        options = self.complete(model, chosen)
        name = await self._add(form.file, model, options, request)
        document = self.documents.get(name)
        return reply({"id": name, **document.description()}, 202)

    async def ask_document(self, name: str) -> Response:
        """Return how much of a document is translated, and which places a person must check."""
        return reply(self.documents.get(name).description())

    async def fetch_document(self, name: str) -> Response:
        """Return the translation of a document."""
        document = self.documents.get(name)
        if document.error is not None:
            raise document.error
        if document.state != "finished":
            what = "the document is not translated yet"
            raise Refused(409, "not_finished", what, "ask for it until it is finished", retry=1)
        file = f"attachment; filename*=UTF-8''{quote(document.name, errors='replace')}"
        headers = {"Content-Disposition": file, "X-Content-Type-Options": "nosniff"}
        return Response(document.data, headers=headers, media_type="application/octet-stream")

    async def translate_file(self, request: Request) -> Response:
        """Translate a document in the form of LibreTranslate, which waits for the translation."""
        try:
            deadline = time.monotonic() + self.limits.seconds
            form = read(LibreTranslateFile, await read_fields(request))
            model, direction = libretranslate.find_direction(self.models, form.source, form.target)
            options = self.complete(model, direction.options)
            name = await self._add(form.file, model, options, request)
            document = self.documents.get(name)
            try:
                await self.wait(document.done, request, deadline)
            except Refused:
                document.unwanted = True
                raise
            if document.error is not None:
                raise document.error
            return reply({"translatedFileUrl": f"{request.base_url}documents/{name}/file"})
        except Refused as refused:
            return refusal(refused, as_text=True)

    async def _add(
        self, file: Any, model: ServedModel, options: SearchOptions, request: Request
    ) -> str:
        if not isinstance(file, UploadFile):
            what, fix = "file: not a file", "send a form with the file as multipart/form-data"
            raise Refused(400, "bad_request", what, fix)
        document = Document(file.filename or "", await file.read(), model, options)
        deadline = time.monotonic() + self.limits.seconds
        return await self.wait(self.documents.add(document, deadline), request, deadline)

    async def translate(self, body: TranslateRequest, request: Request) -> Response:  # type: ignore[valid-type]
        """Translate lines of text. A body with ``q`` has the form of LibreTranslate."""
        return reply(await self.results(body, request))

    async def results(self, body: Any, request: Request) -> dict[str, Any]:
        """Translate a ``TranslateRequest``; return the values of a ``TranslateResponse``."""
        started, name, status = time.monotonic(), "", 500
        try:
            model = self._model(body.model)
            name = model.name
            lines = self._lines(body.text)
            options = self._options(model, body, lines)
            results = await self.wait(model.submit(lines, options), request)
            status = 200
        except UserError:
            status = 422
            raise
        except Refused as refused:
            status = refused.status
            raise
        except Exception as error:  # the operator finds the details on standard error
            print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
            what, fix = "the translation failed", "ask the operator of the server"
            raise Refused(500, "failed", what, fix) from error
        finally:
            seconds = time.monotonic() - started
            self.metrics.requests.labels(name, str(status)).inc()
            if status == 200:
                self.metrics.seconds.labels(name).observe(seconds)
        src, tgt = model.translator.codec.langs(options)
        return {
            "model": name,
            "src": src,
            "tgt": tgt,
            "seconds": seconds,
            "lines": results,
        }

    def _model(self, name: str | None) -> ServedModel:
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            fix = f"choose one of: {', '.join(self.models)}"
            raise Refused(404, "no_such_model", "no model has this name", fix)
        return self.models[name]

    def _lines(self, text: str | Sequence[str]) -> list[str]:
        lines = re.split("\r\n|\r|\n", text) if isinstance(text, str) else list(text)
        if len(lines) > self.limits.lines:
            what = f"the text has {len(lines):,} lines, at most {self.limits.lines:,} are allowed"
            raise Refused(422, "too_many_lines", what, "send the text in several requests")
        most = self.limits.characters
        for number, line in enumerate(lines, 1):
            if len(line) > most:
                what = f"line {number} has {len(line):,} characters, at most {most:,} are allowed"
                raise Refused(422, "line_too_long", what, "split it into sentences, one per line")
        return lines

    def complete(self, model: ServedModel, given: dict[str, Any]) -> SearchOptions:
        """Check options, and complete them with the glossary of the server and by the model.

        Raises:
            UserError: an option is not allowed.
        """
        glossary = {"glossary": self.glossary} if self.glossary else {}
        return model.translator.check_options({**glossary, **given})

    def _options(self, model: ServedModel, body: Any, lines: Sequence[str]) -> SearchOptions:
        """Return the search options of a request, which are within the limits."""
        given = {name: getattr(body, name) for name in OPTIONS if getattr(body, name) is not None}
        for name in PER_BEAM:
            if given.get(name, 0) > self.limits.beam:
                highest = self.limits.beam
                what = f"{name}: {given[name]:,} is above {highest}, the limit of this server"
                raise Refused(422, "bad_option", what, f"choose at most {highest}")
        options = self.complete(model, given)
        if (work := sum(model.work(lines, options))) > self.limits.work:
            share = self.limits.work / work
            raise Refused(
                422,
                "too_much_work",
                f"{quantity(len(lines), 'line')} with beam {options.beam} need {work:,} units of "
                f"work, at most {self.limits.work:,} are allowed; a unit is a character of a line, "
                f"or of max_len_offset ({options.max_len_offset}), times a hypothesis",
                f"send at most {share:.0%} of this text in a request, or choose a smaller beam, "
                "n_best or max_len_offset",
            )
        return options

    async def wait(
        self, waited: Future[Result], request: Request, deadline: float | None = None
    ) -> Result:
        """Wait for a result; give it up if the client disconnects, or if it takes too long.

        Args:
            deadline: value of ``time.monotonic()``; None = the limit of a request from now on.
        """
        future = asyncio.wrap_future(waited)
        if deadline is None:
            deadline = time.monotonic() + self.limits.seconds
        try:
            while not future.done():
                left = deadline - time.monotonic()
                if left <= 0:
                    longest = quantity(self.limits.seconds, "second", "g")
                    what = f"the translation took longer than {longest}"
                    fix = "send less text, or send the request again later"
                    raise Refused(504, "timeout", what, fix, retry=1)
                await asyncio.wait([future], timeout=min(left, DISCONNECT_INTERVAL))
                if not future.done() and await request.is_disconnected():
                    raise Refused(499, "disconnected", "the client closed the connection", "")
            return future.result()
        finally:
            future.cancel()


def page(file: Path) -> Callable[[], Any]:
    """Return a route that sends a page whose own scripts and styles alone may run."""
    text = file.read_text(encoding="utf-8")
    allowed = {
        f"{tag}-src": " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        )
        for tag in ("script", "style")
    }
    policy = {
        "default-src": "'none'", "connect-src": "'self'", "img-src": "data:",
        "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", **allowed,
    }  # fmt: skip
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }

    async def send() -> HTMLResponse:
        return HTMLResponse(text, headers=headers)

    return send


# ---------------------------------------------------------------- errors as JSON


async def _refused(request: Request, error: Refused) -> Response:
    return refusal(error, wants_text(request.url.path))


async def _bad_option(request: Request, error: UserError) -> Response:
    return refusal(bad_option(error), wants_text(request.url.path))


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    problems = problems_of({**part, "loc": part["loc"][1:]} for part in error.errors())
    fix = "correct the body, which is a JSON object; GET /docs describes it"
    return refusal(Refused(422, "bad_request", problems, fix), wants_text(request.url.path))


async def _http_error(request: Request, error: HTTPException) -> Response:
    codes = {400: "bad_request", 405: "wrong_method"}
    code = codes.get(error.status_code, "no_such_path")
    refused = Refused(error.status_code, code, str(error.detail), "see GET /docs")
    return refusal(refused, wants_text(request.url.path))
