"""The requests and answers of the HTTP API, as the OpenAPI description shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, Json, create_model

from nmt.config.errors import allowed, format_value
from nmt.config.recipe import SearchConfig
from nmt.config.schema import leaf_types, meanings
from nmt.decoding.options import SearchOptions

# the operator of the server decides about memory; the server loads no reverse model
EXCLUDED = {"batch_tokens", "reverse_weight", "reverse_tag", "reverse_tgt_tag", "candidates"}
OPTIONS = [name for name in SearchOptions.model_fields if name not in EXCLUDED]
PER_BEAM = ("beam", "n_best")  # memory and time grow with them
HIGHEST_OFFSET = 200  # pieces; a translation of a short line needs few more than the line
LONGEST_TERM = 100  # characters
MOST_TERMS = 1000
# what the API adds to the meaning of an option
NOTES = {
    "max_len_offset": f"Allowed: an integer from 1 to {HIGHEST_OFFSET}.",
    "glossary": f"At most {MOST_TERMS:,} pairs of texts of at most {LONGEST_TERM} characters. [] "
    "turns off the glossary of the server, if it has one.",
    "beam": "The limit `beam` of GET /models is the highest value.",
    "n_best": "The limit `beam` of GET /models is the highest value.",
    "tag": "`tags` of the model in GET /models lists all.",
    "tgt_tag": "`tgt_tags` of the model in GET /models lists all.",
}


# pydantic refuses a lone surrogate in a text of limited length
TermText: TypeAlias = Annotated[str, Field(max_length=LONGEST_TERM)]
Term: TypeAlias = Annotated[list[TermText], Field(min_length=2, max_length=2)]
Texts: TypeAlias = Annotated[list[str], Field(fail_fast=True)]  # not an error for each
Terms: TypeAlias = Annotated[list[Term], Field(max_length=MOST_TERMS)]


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
    short: bool = Field(description="whether it is too short for its source: text is missing")
    pieces: list[str]
    token_log_probs: list[float] = Field(
        description="of each subword, and of the end of each part of the line"
    )
    eos: list[int] = Field(description="where the ends of parts are in token_log_probs")
    alignment: list[tuple[int, int]] = Field(description="pairs (source word, target word), from 0")
    words: list[Word]


class Line(BaseModel):
    """The result of one line."""

    unknown: float = Field(
        description="share of source subwords that the model does not know, from 0 to 1; if it is "
        "high, the translation is probably wrong"
    )
    other_script: float = Field(
        description="share of the letters outside the script of the source language, from 0 to 1, "
        "such as Arabic letters for a model that translates from Slovak"
    )
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
    src_name: str = Field(description="name of the language in English")
    tgt_name: str
    engine: str = Field(description="library that searches: ctranslate2 or torch")
    why_torch: str = Field(description="why it is torch, if that was not chosen")
    device: str
    precision: str
    beam: int = Field(description="beam size, if the request does not have one")
    tags: list[str]
    tgt_tags: list[str]
    tgt_tag_required: bool = Field(description="whether a request must choose one of tgt_tags")
    tgt_names: dict[str, str] = Field(description="names of the languages of tgt_tags, and of none")


class ModelsResponse(BaseModel):
    """The answer to GET /models."""

    models: list[ModelDescription]
    limits: dict[str, float] = Field(description="of a request: body, lines, characters, beam, ...")
    formats: list[str] = Field(description="endings of documents that can be translated")
    corrections: bool = Field(description="whether POST /suggest stores better translations")


class Health(BaseModel):
    """The answer to GET /health."""

    status: str = Field(description="ok, or stopping")
    version: str


class DocumentRequest(BaseModel):
    """A document to translate."""

    file: Any = Field(description="The file; its name ends in .docx, .odt, .html, .po, .srt, ...")
    model: str | None = Field(None, description="A name of GET /models. Default: the first.")
    tgt_tag: str | None = Field(None, description="As in TranslateRequest.")
    glossary: Json[Terms] | None = Field(None, description="As in TranslateRequest, as JSON.")


class Place(BaseModel):
    """A text of a document that a person must check."""

    place: str
    problem: str
    source: str
    text: str = Field(description="its translation")


class DocumentDescription(BaseModel):
    """The progress of a document."""

    name: str
    state: str = Field(description="waiting, translating, finished or failed")
    segments: int = Field(description="number of texts in it")
    translated: int = Field(description="number of texts that are translated, about")
    to_check: list[Place] = Field(description="the first of the texts that a person must check")
    error: str | None = Field(description="why it was not translated")


class DocumentAnswer(DocumentDescription):
    """The answer to POST /documents."""

    id: str = Field(description="of GET /documents/ID and GET /documents/ID/file; it is secret")


class ErrorBody(BaseModel):
    """The error."""

    code: str = Field(description="a word for programs")
    message: str = Field(description="what is wrong, for people")
    fix: str = Field(description="the next step")


class Problem(BaseModel):
    """The answer to a request that was refused or failed."""

    error: ErrorBody


def problems_of(errors: Iterable[Any]) -> str:
    """Return what pydantic found wrong with a body, without the text of the body."""
    problems = [
        f"{'.'.join(map(str, detail['loc'])) or 'body'}: {detail['msg']}" for detail in errors
    ]
    return "; ".join(dict.fromkeys(problems))


def _request() -> type[BaseModel]:
    kinds: dict[str, Any] = {
        "glossary": (Terms, {}),
        "max_len_offset": (int, {"le": HIGHEST_OFFSET}),
    }
    options: dict[str, Any] = {}
    for name in OPTIONS:
        kind, limits = kinds.get(name, (SearchOptions.model_fields[name].annotation, {}))
        options[name] = (kind | None, Field(None, description=_describe(name), **limits))
    return create_model(
        "TranslateRequest",
        # strict: true is not a number, and "5" is not one either
        __config__=ConfigDict(extra="forbid", strict=True),
        __doc__="Text and search options; the recipe of the model has the defaults.",
        text=(
            str | Texts,
            Field(description="A text, of which each line is translated alone, or a list of lines"),
        ),
        model=(str | None, Field(None, description="A name of GET /models. Default: the first.")),
        **options,
    )


def _describe(name: str) -> str:
    field = SearchOptions.model_fields[name]
    meaning = meanings(SearchOptions)[name].removeprefix("true = ")
    parts = [meaning[0].upper() + meaning[1:] + "."]
    if {int, float} & {*leaf_types(field.annotation)} and name not in NOTES:
        parts.append(f"Allowed: {allowed(SearchOptions, name).removesuffix(', or none')}.")
    if name in SearchConfig.model_fields:
        parts.append("Default: that of the model.")
    elif field.default:
        parts.append(f"Default: {format_value(field.default)}.")
    return " ".join([*parts, NOTES.get(name, "")]).strip()


TranslateRequest = _request()
