"""The options of a search: the recipe's ``decode`` keys, and those of a single call.

They are checked together before the first line is read. ``Translator`` and ``nmt-translate`` share
them, so the name, meaning and limits of an option are written only here. ``nmt-translate`` makes a
flag of each field of ``SearchOptions``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError

from nmt.config.errors import allowed
from nmt.config.recipe import DecodeConfig
from nmt.config.schema import key
from nmt.data.glossary import term_problem
from nmt.data.text import clean_line
from nmt.data.vocab import tag_piece
from nmt.errors import UserError

if TYPE_CHECKING:
    import torch

Number = TypeVar("Number", "torch.Tensor", float)

DEFAULT_REVERSE_WEIGHT = 0.5  # of a reverse model that is given without a weight


class SearchOptions(DecodeConfig):
    """The recipe's ``decode`` keys, and options that a recipe does not have."""

    n_best: int = key(1, "O", ge=1, le=1000)
    """translations per line; above 1, each is written as LINE ||| TEXT ||| LOG-PROBABILITY |||
    SCORE; --json is for texts that may contain |||"""
    sample: bool = key(False, "O")
    """sample each token from the model's distribution, instead of searching"""
    temperature: float = key(1.0, "O", gt=0)
    """sampling temperature, which divides the logits; above 1, samples vary more"""
    top_k: int | None = key(None, "Fan 2018", ge=1, le=1_000_000)
    """top-k sampling: sample from the k most likely tokens"""
    top_p: float | None = key(None, "Holtzman 2020", gt=0, le=1)
    """nucleus sampling: sample from the most likely tokens whose probabilities add up to this"""
    seed: int = key(1, "O", ge=0, le=2**63 - 1)
    """random seed of the samples"""
    no_repeat_ngram: int = key(0, "Paulus 2018", ge=0, le=1000)
    """no n-gram of subwords of this length occurs twice; 0 = off"""
    forbid_all: tuple[str, ...] = key((), "O")
    """phrases that no translation may contain"""
    glossary: tuple[tuple[str, str], ...] = key((), "O")
    """terms: a source term, a tab and the target term that its translation must contain"""
    split: Literal["auto", "line"] = key("auto", "O")
    """auto = translate a line with more sentences than usual in the training data sentence by
    sentence; line = translate each line as a whole; default: auto"""
    tag: str | None = key(None, "Johnson 2017")
    """tag to put before each source, such as <2es>; an entry of data.train must have this tag"""
    tgt_tag: str | None = key(None, "Fan 2020")
    """tag of the targets, such as <es>, which no output shows; an entry of data.train must have
    this tgt_tag"""
    src: str | None = key(None, "O", pattern=r"^[A-Za-z0-9_-]+$")
    """language of the input, for the rules of the tokenizer, if data.train has several source
    languages; none = src of the recipe"""
    token_scores: bool = key(False, "O")
    """write one JSON object per translation, with the log-probability of each subword"""
    align: bool = key(False, "Garg 2019")
    """add the word alignment, SOURCE-TARGET from 0: TEXT ||| 0-0 1-2"""
    mbr: Literal["chrf", "bleu"] | None = key(None, "Kumar 2004")
    """output the candidate with the highest average similarity to all candidates, by this metric"""
    reverse_weight: float = key(0.0, "Yee 2019", ge=0, le=1000)
    """weight of the reverse model's score of the source given the candidate; the score of the
    candidate has weight 1; 0 = off"""
    reverse_tag: str | None = key(None, "O")
    """tag that the reverse model needs for the source language, such as <2gl>"""
    reverse_tgt_tag: str | None = key(None, "O")
    """target tag that the reverse model needs for the source language, such as <gl>"""
    candidates: int = key(16, "O", ge=2, le=1000)
    """number of candidates that mbr or a reverse model compares"""

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
        return self.mbr is not None or self.reverse_weight > 0

    @property
    def wanted(self) -> int:
        """The number of hypotheses that the search must find for each line."""
        return self.candidates if self.reranks else self.n_best

    @property
    def target_tag(self) -> str:
        """The tag that decides the target language; empty = none."""
        return self.tgt_tag or self.tag or ""

    def with_default_tags(self, tags: Mapping[str, str]) -> SearchOptions:
        """Fill in tags, by option, that are not given."""
        missing = {name: tag for name, tag in tags.items() if getattr(self, name) is None}
        return self.model_copy(update=missing)

    @property
    def changed(self) -> set[str]:
        """The names of the options that do not have their defaults."""
        fields = SearchOptions.model_fields.items()
        return {name for name, field in fields if getattr(self, name) != field.default}


# option -> the options of which it requires one
REQUIRES = {
    "temperature": ("sample",), "top_k": ("sample",), "top_p": ("sample",), "seed": ("sample",),
    "candidates": ("mbr", "reverse_weight"),
    "reverse_tag": ("reverse_weight",), "reverse_tgt_tag": ("reverse_weight",),
}  # fmt: skip
# pairs that exclude each other, and why
EXCLUDES = {
    ("sample", "beam"): "samples are drawn one by one; {n_best} sets their number",
    ("sample", "require"): "required phrases need a beam search",
    ("sample", "glossary"): "required phrases need a beam search",
    ("mbr", "reverse_weight"): "both choose among the candidates",
    ("stop_rule", "sample"): "samples end by themselves",
}
# the options of given translations, which are not searched
SCORING_OPTIONS = {
    "length_alpha", "length_penalty", "batch_tokens", "align", "token_scores", "tag", "tgt_tag",
    "src",
}  # fmt: skip
Spell = Callable[[str], str]


def as_flag(name: str) -> str:
    """Name the flag of nmt-translate for an option."""
    return "--src-lang" if name == "src" else "--" + name.replace("_", "-")


def search_options(
    defaults: DecodeConfig,
    given: dict[str, Any],
    constraints: Set[str] = frozenset(),
    spell: Spell = str,
) -> SearchOptions:
    """Check the options of one call, and complete them with the recipe's ``defaults``.

    Args:
        given: by name; None = not given.
        constraints: names of the ``LineConstraints`` that are given.
        spell: spells the name of an option in messages, for example ``as_flag``.

    Raises:
        UserError: an unknown option, a value that is not allowed, or options that exclude each
            other; the message names them.
    """
    given = {name: value for name, value in given.items() if value is not None}
    try:
        options = SearchOptions.model_validate({**defaults.model_dump(), **given})
    except ValidationError as error:
        raise UserError(
            "; ".join(_problem(str(e["loc"][0]), e, spell) for e in error.errors()),
            fix="give an allowed value, or leave the option out",
        ) from error
    if any(not clean_line(phrase).strip() for phrase in options.forbid_all):
        raise UserError(f"{spell('forbid_all')}: a phrase is blank", fix="remove it")
    for number, term in enumerate(options.glossary, 1):
        if problem := term_problem(*term):
            what = f"{spell('glossary')}, term {number}: {problem}"
            raise UserError(what, fix="correct or remove it")
    _check_combinations(options, given, constraints, spell)
    wanted = options.wanted
    candidates, beam_name = spell("candidates"), spell("beam")
    if options.n_best > wanted:
        raise UserError(
            f"{spell('n_best')} ({options.n_best}) must not exceed {candidates} ({wanted})",
            fix=f"set {candidates} to at least {options.n_best}",
        )
    if options.sample:  # every beam is a sample
        return options.model_copy(update={"beam": wanted})
    if wanted > options.beam and "beam" in given:
        needs = candidates if options.reranks else spell("n_best")
        raise UserError(
            f"{needs} ({wanted}) must not exceed {beam_name} ({options.beam})",
            fix=f"set {beam_name} to at least {wanted}",
        )
    return options.model_copy(update={"beam": max(options.beam, wanted)})


def check_scoring_options(given: dict[str, Any], spell: Spell = str) -> None:
    """Check the options and constraints of a call that scores given translations.

    Raises:
        UserError: an option is given that only a search has.
    """
    for name, value in given.items():
        if value is not None and name not in SCORING_OPTIONS:
            what = f"{spell(name)} does not apply to given translations"
            raise UserError(what, fix=f"leave {spell(name)} out")


def _check_combinations(
    options: SearchOptions, given: dict[str, Any], constraints: Set[str], spell: Spell
) -> None:
    on = ((options.changed | {"beam"}) & given.keys()) | constraints
    for pair, reason in EXCLUDES.items():
        if on.issuperset(pair):
            first, second = map(spell, pair)
            reason = reason.format(n_best=spell("n_best"))
            raise UserError(
                f"{first} cannot be combined with {second}: {reason}",
                fix=f"leave out {first} or {second}",
            )
    for name, needed in REQUIRES.items():
        if name in given and on.isdisjoint(needed):
            option, choice = spell(name), " or ".join(map(spell, needed))
            raise UserError(
                f"{option} requires {choice}", fix=f"add {choice}, or leave {option} out"
            )


def _problem(name: str, error: Any, spell: Spell) -> str:
    if error["type"] == "extra_forbidden":
        names = ", ".join(map(spell, SearchOptions.model_fields))
        return f"unknown option {spell(name)}; the options are {names}"
    return f"{spell(name)}: {error['input']} is not {allowed(SearchOptions, name)}"
