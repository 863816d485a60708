"""The fields of a body, a JSON object or a form as browsers send it, and the form of an error."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import Response

from nmt.apps.serve.limits import Refused
from nmt.apps.serve.schema import problems_of
from nmt.errors import UserError

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
MOST_FIELDS = 100
# paths of LibreTranslate's API, whose errors are texts; /translate has both forms
TEXT_PATHS = {"/translate_file", "/detect", "/frontend/settings", "/download_file"}
_Q = re.compile(rb""""q"\s*:|name="?q"?\s|(?:^|&)q=""")
Fields = TypeVar("Fields", bound=BaseModel)


async def read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a body: of a JSON object or a form. A body of another kind has none.

    Raises:
        Refused: there are too many.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()  # kept for those who read it after this
    try:
        if kind in FORM_TYPES:
            form = await request.form()
            several = {name: form.getlist(name) for name in form}
            return {name: found if len(found) > 1 else found[0] for name, found in several.items()}
        fields = json.loads(body)
    except (ValueError, RecursionError, HTTPException, MultiPartException):
        return {}
    if not isinstance(fields, dict):
        return {}
    if len(fields) > MOST_FIELDS:  # before an error is made for each
        what = f"the body has {len(fields):,} fields, at most {MOST_FIELDS} are allowed"
        raise Refused(422, "bad_request", what, "see GET /docs")
    return fields


def read(form: type[Fields], fields: dict[str, Any]) -> Fields:
    """Return the fields of a body, checked.

    Raises:
        Refused: a field is missing, or its value is not allowed.
    """
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise Refused(400, "bad_request", problems_of(error.errors()), "see GET /docs") from error


def wants_text(path: str, body: bytes = b"") -> bool:
    """Return whether a request has LibreTranslate's form, in which an error is a text.

    Args:
        body: of a request that could not be read; its start suffices.
    """
    return path in TEXT_PATHS or (path == "/translate" and _Q.search(body) is not None)


def bad_option(error: UserError) -> Refused:
    """Return the refusal of a search option."""
    return Refused(422, "bad_option", error.what, error.fix or "")


def refusal(refused: Refused, as_text: bool = False) -> Response:
    """Return the JSON answer to a refused request.

    Args:
        as_text: the error is one text, as in LibreTranslate's form.
    """
    headers = {} if refused.retry is None else {"Retry-After": str(refused.retry)}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    error: Any = {"code": refused.code, "message": refused.message, "fix": refused.fix}
    if as_text:
        error = f"{refused.message}: {refused.fix}"
    return reply({"error": error}, refused.status, headers)


def reply(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    text = json.dumps(values, ensure_ascii=False)
    # it may quote a surrogate of the request: UTF-8 cannot represent it, but JSON can, as \\ud800
    body = text.encode("utf-8", "backslashreplace")
    return Response(body, status, headers, media_type="application/json")
