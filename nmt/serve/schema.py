"""The requests and answers of the HTTP API, as the OpenAPI description shows them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from nmt.decoding.options import SearchOptions

# the operator of the server decides about memory; the server loads no reverse model
EXCLUDED = {"batch_tokens", "reverse_weight", "reverse_tag"}


class Word(BaseModel):
    """A word of tokenized text, which alignments refer to."""

    start: int = Field(description="position in the text, in Unicode code points")
    end: int = Field(description="position after the word; equal to start if it is not in the text")
    probability: float | None = Field(
        description="of the word, given the source and the words before; null if not requested"
    )


class Translation(BaseModel):
    """One translation of a line."""

    text: str
    score: float | None = Field(description="log_prob / length penalty; the search ranks by it")
    log_prob: float | None = Field(description="natural logarithm of the probability")
    finished: bool = Field(description="false if it was cut at the length limit")
    pieces: list[str]
    token_log_probs: list[float] = Field(description="of each piece and of the end of the sentence")
    alignment: list[tuple[int, int]] = Field(description="pairs (source word, target word), from 0")
    words: list[Word]


class Line(BaseModel):
    """The result of one line."""

    source_words: list[Word]
    translations: list[Translation] = Field(
        description="best first; samples in the order of their draws"
    )


class TranslateResponse(BaseModel):
    """The answer to POST /translate."""

    model: str
    src: str
    tgt: str
    seconds: float = Field(description="time in the queue and in the model")
    lines: list[Line] = Field(description="one for each line of the request")


class ModelDescription(BaseModel):
    """A served model."""

    name: str
    src: str
    tgt: str
    engine: str
    device: str
    precision: str
    beam: int = Field(description="beam size, if the request does not have one")
    tags: list[str]
    token_scores: bool = Field(description="whether it supports the option token_scores")
    align: bool = Field(description="whether it supports the option align")


class ModelsResponse(BaseModel):
    """The answer to GET /models."""

    models: list[ModelDescription]
    limits: dict[str, float] = Field(description="of a request: body, lines, characters, beam, ...")


class Health(BaseModel):
    """The answer to GET /health."""

    status: str = Field(description="ok, or stopping")
    version: str


class ErrorBody(BaseModel):
    """What went wrong."""

    code: str = Field(description="a word for programs")
    message: str = Field(description="what is wrong, for people")
    fix: str = Field(description="the next step")


class Problem(BaseModel):
    """The answer to a request that was refused or failed."""

    error: ErrorBody


def _request() -> type[BaseModel]:
    """Return the body of POST /translate: text, model, and the search options, none by default."""
    options: dict[str, Any] = {
        name: (field.annotation | None, Field(None, description=field.description))  # type: ignore[operator]
        for name, field in SearchOptions.model_fields.items()
        if name not in EXCLUDED
    }
    options["n_best"] = (int | None, Field(None, description="translations per line; default: 1"))
    return create_model(
        "TranslateRequest",
        __config__=ConfigDict(extra="forbid"),
        __doc__="Text and search options; the recipe of the model has the defaults.",
        text=(
            str | list[str],
            Field(description="a text, of which each line is translated alone, or a list of lines"),
        ),
        model=(str | None, Field(None, description="a name of GET /models; default: the first")),
        **options,
    )


TranslateRequest = _request()
OPTIONS = [name for name in SearchOptions.model_fields if name not in EXCLUDED]
PER_BEAM = ("beam", "n_best", "candidates", "groups")  # memory and time grow with them
