"""The options of a search: the recipe's ``decode`` keys, and those of a single call.

Name, meaning and limits of an option are written only here. The flags of the commands, the
requests of nmt-serve and the table of docs/search-options.md are made from ``SearchOptions``, and
``search_options`` checks the options of a call, once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError

from nmt.config.errors import allowed
from nmt.config.recipe import SearchConfig
from nmt.config.schema import key
from nmt.data.glossary import term_problem
from nmt.data.vocab import tag_piece
from nmt.errors import UserError

if TYPE_CHECKING:
    import torch

Number = TypeVar("Number", "torch.Tensor", float)

DEFAULT_REVERSE_WEIGHT = 0.5  # of a reverse model that is given without a weight


class SearchOptions(SearchConfig):
    """The recipe's ``decode`` keys, and options that a recipe does not have."""

    n_best: int = key(1, "O", ge=1, le=1000)
    """number of translations of each line"""
    sample: bool = key(False, "O")
    """true = sample each token from the model's distribution, instead of searching; n_best is the
    number of samples"""
    temperature: float = key(1.0, "O", gt=0)
    """sampling temperature, which divides the logits; above 1, samples vary more"""
    top_k: int | None = key(None, "Fan 2018", ge=1, le=1_000_000)
    """top-k sampling: sample from the k most likely tokens"""
    top_p: float | None = key(None, "Holtzman 2020", gt=0, le=1)
    """nucleus sampling: sample from the most likely tokens whose probabilities add up to this"""
    seed: int = key(1, "O", ge=0, le=2**63 - 1)
    """random seed of the samples"""
    glossary: tuple[tuple[str, str], ...] = key((), "O", form="pairs of texts")
    """terms: a source term and the target term that its translation must contain; a word that ends
    with * stands for all words that begin so"""
    split: Literal["auto", "line"] = key("auto", "O")
    """how a line of several sentences is translated: auto = sentence by sentence, if it has more of
    them than is usual in the training data; line = as a whole"""
    tag: str | None = key(None, "Johnson 2017")
    """tag before each source, such as <2es>, one that the model was trained with"""
    tgt_tag: str | None = key(None, "Fan 2020")
    """tag of the targets, such as <es>, one that the model was trained with; no output shows it"""
    src: str | None = key(None, "O", pattern=r"^[A-Za-z0-9_-]+$")
    """language of the input, for the rules of the tokenizer, if the model was trained with several
    source languages; none = src of the recipe"""
    token_scores: bool = key(False, "O")
    """true = add the log-probability of each subword; nmt-translate then writes one JSON object
    per translation"""
    align: bool = key(False, "Garg 2019")
    """true = add the word alignment, pairs of a source and a target word from 0, which
    nmt-translate writes as 0-0 1-2 after the translation"""
    reverse_weight: float = key(0.0, "Yee 2019", ge=0, le=1000)
    """weight of the reverse model's score of the source given the candidate; the score of the
    candidate has weight 1; 0 = off"""
    reverse_tag: str | None = key(None, "O")
    """tag that the reverse model needs for the source language, such as <2gl>"""
    reverse_tgt_tag: str | None = key(None, "O")
    """target tag that the reverse model needs for the source language, such as <gl>"""
    candidates: int = key(16, "O", ge=2, le=1000)
    """number of candidates that a reverse model compares"""

    def penalty(self, length: Number) -> Number:
        """Return what divides the log-probability of this many tokens, EOS included.

        It is ``((5 + n) / 6)^alpha`` (W equation 14); of the kind mean, ``n^alpha`` with a target
        tag, as in other toolkits.
        """
        if self.length_penalty == "mean":
            return (length + len(tag_piece(self.tgt_tag))) ** self.length_alpha
        return ((5 + length) / 6) ** self.length_alpha

    @property
    def reranks(self) -> bool:
        """Whether the best hypothesis of a search may not be the translation."""
        return self.reverse_weight > 0

    @property
    def wanted(self) -> int:
        """The number of hypotheses that the search must find for each line."""
        return self.candidates if self.reranks else self.n_best

    @property
    def target_tag(self) -> str:
        """The tag that decides the target language; empty = none."""
        return self.tgt_tag or self.tag or ""

    def with_defaults(self, decode: SearchConfig) -> SearchOptions:
        """Fill in the recipe's keys that are not set, and a beam for the wanted hypotheses."""
        missing = SearchConfig.model_fields.keys() - self.model_fields_set
        options = self.model_copy(update=decode.model_dump(include=missing))
        beam = options.wanted if options.sample else max(options.beam, options.wanted)
        return options.model_copy(update={"beam": beam})

    def with_default_tags(self, tags: Mapping[str, str]) -> SearchOptions:
        """Fill in tags, by option, that are not given."""
        missing = {name: tag for name, tag in tags.items() if getattr(self, name) is None}
        return self.model_copy(update=missing)

    @property
    def changed(self) -> set[str]:
        """The names of the options that do not have their defaults."""
        fields = SearchOptions.model_fields.items()
        return {name for name, field in fields if getattr(self, name) != field.default}


# option -> the option or argument that it requires
REQUIRES = {
    "temperature": "sample", "top_k": "sample", "top_p": "sample", "seed": "sample",
    "reverse_weight": "reverse", "reverse_tag": "reverse", "reverse_tgt_tag": "reverse",
    "candidates": "reverse",
}  # fmt: skip
# the options of given translations, which are not searched
SCORING_OPTIONS = {
    "length_alpha", "length_penalty", "batch_tokens", "align", "token_scores", "tag", "tgt_tag",
    "src",
}  # fmt: skip
Excludes = Mapping[str, tuple[Collection[str], str]]
# option or argument -> those that it excludes, and why
EXCLUDES: Excludes = {
    "targets": (
        ("reverse", "prefix", "require",
         *(name for name in SearchOptions.model_fields if name not in SCORING_OPTIONS)),
        "given translations are not searched",
    ),
    "sample": (
        ("beam", "require", "glossary", "stop_rule"),
        "samples are drawn token by token, without a search",
    ),
}  # fmt: skip
Spell = Callable[[str], str]


def search_options(
    given: Mapping[str, Any],
    others: Set[str] = frozenset(),
    spell: Spell = str,
    excludes: Excludes = EXCLUDES,
) -> SearchOptions:
    """Check the options of one call. Those that are not given do not count as set.

    Args:
        given: by name; None = not given.
        others: names of the other arguments that are given, of which EXCLUDES and REQUIRES have
            some.
        spell: spells the name of an option in messages, for example as a flag.
        excludes: argument -> those that it excludes, and why.

    Raises:
        UserError: an unknown option, a value that is not allowed, or options that exclude each
            other; the message names them.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if "reverse" in others:
        given = {"reverse_weight": DEFAULT_REVERSE_WEIGHT, **given}
    try:
        options = SearchOptions.model_validate(given)
    except ValidationError as error:
        raise UserError(
            "; ".join(_problem(str(e["loc"][0]), e, spell) for e in error.errors()),
            fix="give an allowed value, or leave the option out",
        ) from error
    for number, term in enumerate(options.glossary, 1):
        if problem := term_problem(*term):
            what = f"{spell('glossary')}, term {number}: {problem}"
            raise UserError(what, fix="correct or remove it")
    on = ((options.changed | {"beam"}) & given.keys()) | others
    for name, (excluded, reason) in excludes.items():
        for other in excluded if name in on else ():
            if other in on:
                first, second = spell(other), spell(name)
                raise UserError(
                    f"{first} cannot be combined with {second}: {reason}",
                    fix=f"leave out {first} or {second}",
                )
    for name, needed in REQUIRES.items():
        if name in given and needed not in on:
            option, choice = spell(name), spell(needed)
            raise UserError(
                f"{option} requires {choice}", fix=f"add {choice}, or leave {option} out"
            )
    for name, most, limit in (
        ("n_best", options.wanted, "candidates"),
        ("candidates" if options.reranks else "n_best", options.beam, "beam"),
    ):
        value = getattr(options, name)
        if value > most and (limit in given or limit == "candidates"):
            what = f"{spell(name)} ({value}) must not exceed {spell(limit)} ({most})"
            raise UserError(what, fix=f"set {spell(limit)} to at least {value}")
    return options


def _problem(name: str, error: Any, spell: Spell) -> str:
    if error["type"] == "extra_forbidden":
        names = ", ".join(map(spell, SearchOptions.model_fields))
        return f"unknown option {spell(name)}; the options are {names}"
    return f"{spell(name)}: {error['input']} is not {allowed(SearchOptions, name)}"
