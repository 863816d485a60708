"""What a search may be told: the recipe's ``decode`` keys, and what is chosen at each call.

One frozen value, checked as a whole before the first line is read; ``Translator`` and
``nmt-translate`` share it, so an option's name, meaning and limits stand here only.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from nmt.config import DecodeConfig
from nmt.errors import UserError
from nmt.schema import allowed, key


class SearchOptions(DecodeConfig):
    """The recipe's keys, with what is no default of a recipe."""

    n_best: int = key(1, "hypotheses of each line", "O", ge=1)


def search_options(defaults: DecodeConfig, given: dict[str, Any]) -> SearchOptions:
    """The options of one call.

    Args:
        defaults: the recipe's.
        given: by name; None = not given.

    Raises:
        UserError: no such option, a value that cannot be, or options that contradict each other,
            both named.
    """
    given = {name: value for name, value in given.items() if value is not None}
    try:
        options = SearchOptions.model_validate({**defaults.model_dump(), **given})
    except ValidationError as error:
        raise UserError("; ".join(_wrong(str(e["loc"][0]), e) for e in error.errors())) from error
    if options.n_best > options.beam:
        if "beam" in given:
            raise UserError(
                f"{options.n_best} best translations need a beam of at least {options.n_best}, "
                f"not {options.beam}",
                fix=f"set beam to {options.n_best} or more",
            )
        options = options.model_copy(update={"beam": options.n_best})
    return options


def _wrong(name: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"no option {name}; there are {', '.join(SearchOptions.model_fields)}"
    return f"{name}: {error['input']} is not {allowed(SearchOptions, name)}"
