"""The fields of a body: of a JSON object, or of a form, as browsers and many programs send it."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from nmt.apps.serve.limits import Refused
from nmt.apps.serve.schema import problems_of

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
Fields = TypeVar("Fields", bound=BaseModel)


async def read_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a body: of a JSON object or a form. A body of another kind has none."""
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
    return fields if isinstance(fields, dict) else {}


def read(form: type[Fields], fields: dict[str, Any]) -> Fields:
    """Return the fields of a body, checked.

    Raises:
        Refused: a field is missing, or its value is not allowed.
    """
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise Refused(400, "bad_request", problems_of(error.errors()), "see GET /docs") from error
