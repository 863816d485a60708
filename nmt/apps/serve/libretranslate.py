"""LibreTranslate's form of requests, so that its clients and plug-ins can use the server.

``POST /translate`` with ``q``, ``source`` and ``target`` is a request of this form, in JSON or as a
browser sends it. Its answers and errors have LibreTranslate's form, too. The server does not
identify languages: ``auto`` stands for the only source language that is translated to the target.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, Field

from nmt.apps.serve.documents import Document
from nmt.apps.serve.form import bad_option, read, read_fields, refusal, reply, wants_text
from nmt.apps.serve.limits import Refused
from nmt.apps.serve.model import ServedModel
from nmt.apps.serve.schema import Texts, TranslateRequest
from nmt.config.entries import Direction
from nmt.data.lines import is_blank
from nmt.errors import UserError
from nmt.text.languages import language_name, standard_code

if TYPE_CHECKING:
    from nmt.apps.serve.app import Service

AUTO = "auto"
Text: TypeAlias = Annotated[str, Field(min_length=1)]


class LibreTranslateRequest(BaseModel):
    """A text to translate."""

    q: str | Texts = Field(description="A text, or a list of texts.")
    source: Text = Field(description="Language of the text, or `auto`, as GET /languages lists it.")
    target: Text = Field(description="Language to translate to, as GET /languages lists it.")
    format: Literal["text", "html"] = Field("text", description="Whether the texts have tags.")
    alternatives: Annotated[int, BeforeValidator(lambda value: value or 0)] = Field(
        0, ge=0, description="Number of further translations."
    )


class LibreTranslateFile(BaseModel):
    """A document to translate."""

    file: Any = Field(description="The file; its name ends in .docx, .odt, .html, .po, .srt, ...")
    source: Text = Field(description="Language of the text, as GET /languages lists it.")
    target: Text = Field(description="Language to translate to.")


class TranslatedFile(BaseModel):
    """The answer to POST /translate_file."""

    translatedFileUrl: str = Field(description="address of the translation, for two minutes")


class Suggestion(BaseModel):
    """A better translation of a text."""

    q: Text = Field(description="The text, of one line.")
    s: Text = Field(description="Its translation as it should be.")
    source: Text = Field(description="Language of the text.")
    target: Text = Field(description="Language of the translation.")
    shown: str = Field("", description="The translation that the server gave.")
    model: str | None = Field(None, description="Its model. Default: the first for the languages.")


class LanguageDescription(BaseModel):
    """A language from which a model translates."""

    code: str
    name: str = Field(description="in English")
    targets: list[str] = Field(description="codes of the languages to which it is translated")


class Success(BaseModel):
    """The answer to a suggestion that was stored."""

    success: bool


def languages(models: dict[str, ServedModel]) -> list[dict[str, Any]]:
    """Return the source languages with their targets, as GET /languages lists them."""
    targets: dict[str, list[str]] = {}
    for direction in itertools.chain.from_iterable(model.directions() for model in models.values()):
        known_targets = targets.setdefault(standard_code(direction.src), [])
        if (target := standard_code(direction.tgt)) not in known_targets:
            known_targets.append(target)
    return [
        {"code": code, "name": language_name(code), "targets": names}
        for code, names in targets.items()
    ]


def find_direction(
    models: dict[str, ServedModel], source: str, target: str, name: str | None = None
) -> tuple[ServedModel, Direction]:
    """Return the first model that translates from one language to another, and its direction.

    Args:
        source: a code in any form, or ``auto``.
        name: of the model; None = any.

    Raises:
        Refused: there is none, or the source language is not clear.
    """
    matches = [
        (model, candidate)
        for model in models.values()
        if name in (None, model.name)
        for candidate in model.directions()
        if source == AUTO or standard_code(candidate.src) == standard_code(source)
        if standard_code(candidate.tgt) == standard_code(target)
    ]
    if not matches:
        what = f"no model translates from {source} to {target}"
        raise Refused(400, "no_such_language", what, "choose languages of GET /languages")
    if len(sources := {candidate.src for _, candidate in matches}) > 1:
        what = "the server does not identify languages"
        fix = f"choose a source of: {', '.join(sorted(sources))}"
        raise Refused(400, "no_such_language", what, fix)
    return matches[0]


def body_of(form: type[BaseModel], kind: str) -> dict[str, Any]:
    """Return the description of a body for OpenAPI."""
    return {"requestBody": {"content": {kind: {"schema": form.model_json_schema()}}}}


def route_of_both_forms(service: Service) -> type[APIRoute]:
    """Return the class of a route that answers bodies with ``q`` itself."""

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            other = super().get_route_handler()

            async def handle(request: Request) -> Response:
                fields = await read_fields(request)
                body = b"" if fields else await request.body()
                if "q" not in fields and not wants_text(request.url.path, body):
                    return await other(request)
                try:
                    if "q" not in fields:
                        fix = "send a JSON object or a form"
                        raise Refused(400, "bad_request", "Invalid JSON format", fix)
                    return reply(await _values(service, fields, request))
                except Refused as refused:
                    return refusal(refused, as_text=True)
                except UserError as error:
                    return refusal(bad_option(error), as_text=True)

            return handle

    return Route


async def _values(service: Service, fields: dict[str, Any], request: Request) -> dict[str, Any]:
    asked = read(LibreTranslateRequest, fields)
    chosen = find_direction(service.models, asked.source, asked.target)
    texts = asked.q if isinstance(asked.q, list) else [asked.q]
    # pages of HTML have a limit of time for all of them
    if asked.format != "html" and len(texts) > (most := service.limits.lines):
        what = f"Invalid request: q has {len(texts):,} texts, at most {most:,} are allowed"
        raise Refused(400, "too_many_lines", what, "send the texts in several requests")
    values: dict[str, Any] = {}
    if asked.format == "html":
        values["translatedText"] = await _html(service, texts, asked, chosen, request)
    else:
        best, *others = await _plain(service, texts, asked, chosen, request)
        values["translatedText"] = best
        if others:
            values["alternatives"] = [list(of_text) for of_text in zip(*others, strict=True)]
    if asked.source == AUTO:
        # not identified, so without confidence
        language = {"confidence": 0, "language": standard_code(chosen[1].src)}
        values["detectedLanguage"] = [language] * len(texts)
    if isinstance(asked.q, list):
        return values
    return {name: value[0] for name, value in values.items()}


async def _plain(
    service: Service,
    texts: list[str],
    asked: LibreTranslateRequest,
    chosen: tuple[ServedModel, Direction],
    request: Request,
) -> list[list[str]]:
    """Return the best translation of each text, then the second best, and so on."""
    lines, (model, direction) = [text.split("\n") for text in texts], chosen
    given: dict[str, Any] = {
        "text": [line for of_text in lines for line in of_text],
        "model": model.name,
        "n_best": 1 + asked.alternatives,
        **direction.options,
    }
    results = iter((await service.results(TranslateRequest(**given), request))["lines"])
    found = [[next(results)["translations"] for _ in of_text] for of_text in lines]
    return [  # a line may have fewer translations than others
        [
            "\n".join(ranks[min(rank, len(ranks) - 1)]["text"] for ranks in of_text)
            for of_text in found
        ]
        for rank in range(1 + asked.alternatives)
    ]


async def _html(
    service: Service,
    texts: list[str],
    asked: LibreTranslateRequest,
    chosen: tuple[ServedModel, Direction],
    request: Request,
) -> list[str]:
    if asked.alternatives:
        what = "format: html has no alternatives"
        raise Refused(400, "bad_request", what, "leave out alternatives, or send plain text")
    model, direction = chosen
    options = service.complete(model, direction.options)
    pages = {  # of texts that are not blank; with a mark, no tag decides the encoding
        text: Document("q.html", text.encode("utf-8-sig", "replace"), model, options)
        for text in texts
        if not is_blank(text)
    }
    deadline = time.monotonic() + service.limits.seconds
    try:
        await service.wait(
            service.documents.translate([*pages.values()], deadline), request, deadline
        )
    finally:
        for page in pages.values():
            page.unwanted = True
    return [pages[text].data.decode("utf-8-sig") if text in pages else text for text in texts]
