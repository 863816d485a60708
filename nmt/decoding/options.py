"""What a search may be told: the recipe's ``decode`` keys, and what is chosen at each call.

One frozen value, checked as a whole before the first line is read; ``Translator`` and
``nmt-translate`` share it, so an option's name, meaning and limits stand here only.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Literal

from pydantic import ValidationError

from nmt.config.recipe import DecodeConfig
from nmt.config.schema import allowed, option
from nmt.errors import UserError


class SearchOptions(DecodeConfig):
    """The recipe's keys, with what is no default of a recipe."""

    n_best: int = option(
        1, "hypotheses a line: LINE ||| TEXT ||| LOG-PROBABILITY ||| SCORE", "O", ge=1, le=1000
    )
    sample: bool = option(False, "draw n_best samples instead of searching", "O")
    temperature: float = option(1.0, "divides the logits that are sampled from", "O", gt=0)
    top_k: int | None = option(
        None, "sample from this many likeliest tokens", "Fan 2018", ge=1, le=1_000_000
    )
    top_p: float | None = option(
        None, "sample from the likeliest tokens that reach this", "Holtzman 2020", gt=0, le=1
    )
    seed: int = option(1, "of the samples", "O", ge=0, le=2**63 - 1)
    groups: int = option(1, "groups of beams that differ", "Vijayakumar 2016", ge=1, le=1000)
    diversity: float = option(
        0.5, "cost of a token that an earlier group says", "Vijayakumar 2016", ge=0
    )
    no_repeat_ngram: int = option(
        0, "no n pieces in a row come twice; 0 = off", "Paulus 2018", ge=0, le=1000
    )
    forbid_all: tuple[str, ...] = option((), "phrases that no translation says", "O")
    token_scores: bool = option(
        False, "log-probability of each piece; written as one JSON object a hypothesis", "O"
    )
    align: bool = option(
        False, "links SOURCE WORD-TARGET WORD, from 0: TEXT ||| 0-0 1-2", "Garg 2019"
    )
    mbr: Literal["chrf", "bleu"] | None = option(
        None, "the candidate most like all others, by this metric", "Kumar 2004"
    )
    candidates: int = option(16, "found, or drawn, for mbr to choose from", "O", ge=2, le=1000)

    @property
    def wanted(self) -> int:
        """Hypotheses of each line that the search shall find."""
        return self.candidates if self.mbr else self.n_best


# an option, and the one without which it means nothing
NEEDS = {
    "temperature": "sample", "top_k": "sample", "top_p": "sample", "seed": "sample",
    "diversity": "groups", "candidates": "mbr",
}  # fmt: skip
# pairs that contradict each other, and why
EXCLUDE = {
    ("sample", "beam"): "samples are drawn one by one; n_best says how many",
    ("sample", "groups"): "groups are of beams, and a sample has none",
    ("sample", "require"): "required phrases need a beam search",
    ("groups", "require"): "the beam of a line with required phrases is split by its progress",
}


def search_options(
    defaults: DecodeConfig, given: dict[str, Any], wishes: Set[str] = frozenset()
) -> SearchOptions:
    """The options of one call.

    Args:
        defaults: the recipe's.
        given: by name; None = not given.
        wishes: names of what lines have of their own, see ``nmt.decoding.wishes``.

    Raises:
        UserError: no such option, a value that cannot be, or options that contradict each other,
            both named.
    """
    given = {name: value for name, value in given.items() if value is not None}
    try:
        options = SearchOptions.model_validate({**defaults.model_dump(), **given})
    except ValidationError as error:
        raise UserError(
            "; ".join(_wrong(str(e["loc"][0]), e) for e in error.errors()),
            fix="give a value that is allowed, or leave the option out",
        ) from error
    if any(not phrase.strip() for phrase in options.forbid_all):
        raise UserError("forbid_all: a phrase is blank", fix="leave it out")
    _refuse_contradictions(options, given, wishes)
    wanted = options.wanted
    if options.n_best > wanted:
        raise UserError(
            f"{options.n_best} best of {wanted} candidates cannot be",
            fix=f"set candidates to {options.n_best} or more",
        )
    if options.sample:  # every beam is a sample
        return options.model_copy(update={"beam": wanted})
    beam = options.beam
    if wanted > beam:
        if "beam" in given:
            what = "candidates" if options.mbr else "best translations"
            raise UserError(
                f"{wanted} {what} need a beam of at least {wanted}, not {beam}",
                fix=f"set beam to {wanted} or more",
            )
        beam = wanted
    if beam % options.groups:
        if "beam" in given:
            raise UserError(
                f"a beam of {beam} cannot be split into {options.groups} equal groups",
                fix=f"set beam to a multiple of groups, {options.groups}",
            )
        beam += options.groups - beam % options.groups
    return options.model_copy(update={"beam": beam})


def _refuse_contradictions(options: SearchOptions, given: dict[str, Any], wishes: Set[str]) -> None:
    """
    Raises:
        UserError: two options that were given do not go together.
    """
    default = {name: field.default for name, field in SearchOptions.model_fields.items()}
    on = {name for name in given if name == "beam" or getattr(options, name) != default[name]}
    on |= wishes
    for pair, why in EXCLUDE.items():
        if on.issuperset(pair):
            raise UserError(
                f"{pair[0]} and {pair[1]} contradict each other: {why}",
                fix=f"leave out {pair[0]} or {pair[1]}",
            )
    for name, needed in NEEDS.items():
        if name in given and needed not in on:
            raise UserError(f"{name} means nothing without {needed}", fix=f"give {needed} too")


def _wrong(name: str, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"no option {name}; there are {', '.join(SearchOptions.model_fields)}"
    return f"{name}: {error['input']} is not {allowed(SearchOptions, name)}"
