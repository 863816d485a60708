"""Entries of corpora in a recipe: a path alone, or a mapping with the keys of its class.

``data.train``, ``data.dev``, ``data.test`` and ``segment.learn_from`` have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_serializer,
    model_validator,
)

from nmt.config.schema import ConfigBase, in_words, key, list_of

if TYPE_CHECKING:
    from nmt.config.recipe import DataConfig, Recipe

NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]
Prefix: TypeAlias = Annotated[NonEmpty, in_words("a path prefix")]
Language: TypeAlias = Annotated[
    str, in_words("a language code of letters, digits, - and _", pattern=r"^[A-Za-z0-9_-]+$")
]
Tag: TypeAlias = Annotated[
    str,
    in_words(
        "letters, digits, - and _ in angle brackets, such as <bt>", pattern=r"^<[A-Za-z0-9_-]+>$"
    ),
]
TAG_KEYS = ("tag", "tgt_tag")  # of an entry: of its sources, of its targets
MAX_WEIGHT = 1000  # of an entry of data.train
SPECIAL_NAMES = ("<pad>", "<s>", "<unk>", "<mask>")  # of the vocabulary, as displayed


@dataclass(frozen=True)
class Direction:
    """A source language, a target language, and the tags of the lines of both."""

    src: str
    tgt: str
    tag: str | None = None
    tgt_tag: str | None = None

    @property
    def langs(self) -> tuple[str, str]:
        """The source and the target language."""
        return self.src, self.tgt

    @property
    def tags(self) -> tuple[str | None, str | None]:
        """The tag of sources and that of targets."""
        return self.tag, self.tgt_tag

    @property
    def options(self) -> dict[str, str]:
        """The search options that choose this direction."""
        return {name: value for name in ("src", *TAG_KEYS) if (value := getattr(self, name))}


@dataclass(frozen=True)
class Directions:
    """The directions of the training data of a model.

    Attributes:
        src, tgt: of the recipe.
        trained: those of ``data.train``; empty = not known.
    """

    src: str = ""
    tgt: str = ""
    trained: tuple[Direction, ...] = ()

    @property
    def sources(self) -> list[str]:
        """The source languages."""
        return list(dict.fromkeys(direction.src for direction in self.trained)) or [self.src]

    @property
    def always_tagged(self) -> bool:
        """Whether a tag is before each source."""
        return all(direction.tag for direction in self.trained) and bool(self.trained)

    @property
    def tgt_tag_required(self) -> bool:
        """Whether every target begins with a tag, and not always with the same one."""
        tags = {direction.tgt_tag for direction in self.trained}
        return None not in tags and len(tags) > 1

    @property
    def default_tags(self) -> dict[str, str]:
        """``tag`` and ``tgt_tag`` that all directions share, by key."""
        found = {name: {getattr(one, name) for one in self.trained} or {None} for name in TAG_KEYS}
        return {name: tag for name, (tag, *more) in found.items() if tag and not more}

    @property
    def tag_targets(self) -> dict[str, str]:
        """The target language of each tag; the tag "" means none.

        The tag that decides it is ``tgt_tag``, or ``tag`` of a direction without one. A tag that
        has several target languages, or only ``tgt``, is left out.
        """
        langs: dict[str, set[str]] = {}
        for one in self.trained:
            langs.setdefault(one.tgt_tag or one.tag or "", set()).add(one.tgt)
        return {tag: lang for tag, (lang, *more) in langs.items() if not more and lang != self.tgt}


class Entry(ConfigBase):
    """What the entries of all corpora have; a recipe may write a path alone."""

    path: Prefix = key(..., "O")
    """path prefix of the files PATH.SRC and PATH.TGT, one sentence per line; in data.train also a
    file of corrections, FILE.tsv, as nmt-serve --corrections writes it"""
    src: Language | None = key(None, "O")
    """source language of the corpus; none = the recipe's src; in data.train, equal to tgt =
    monolingual text PATH.SRC, copied to both sides (Currey et al. 2017)"""
    tgt: Language | None = key(None, "O")
    """target language of the corpus; none = the recipe's tgt"""
    tag: Tag | None = key(None, "Johnson 2017, Caswell 2019")
    """special token before each source; text can never produce it; nmt-translate --tag
    puts it before the lines to translate"""
    tgt_tag: Tag | None = key(None, "Fan 2020")
    """special token that each target begins with, such as the target language; nmt-translate
    --tgt-tag forces it, and no output shows it"""
    tokenized: bool | None = key(None, "O")
    """true = the files are Moses-tokenized, false = they are plain text; if data.tokenized differs,
    they are converted; none = as data.tokenized"""

    @property
    def table(self) -> bool:
        """Whether the path is a table of corrections, which has both sides."""
        return self.path.endswith(".tsv")

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": str(value)} if isinstance(value, (str, Path)) else value

    def _broken_rules(self) -> Iterator[str]:
        for name in TAG_KEYS:
            if (tag := getattr(self, name)) in SPECIAL_NAMES:
                yield f"{name}: {tag} is a special of the vocabulary; choose another name"

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> Any:
        values = dump(self)
        if "path" not in values:  # the caller of model_dump excluded it
            return values
        set_keys = {k: v for k, v in values.items() if v != type(self).model_fields[k].default}
        return self.path if set_keys.keys() == {"path"} else set_keys

    def langs(self, recipe: Recipe) -> tuple[str, str]:
        """Return the source and target language; they are equal if the text has only one."""
        src = self.src or recipe.src
        return src, self.tgt or recipe.tgt or src

    def direction(self, recipe: Recipe) -> Direction:
        """Return the languages and tags in a recipe.

        An entry without a tag has the tag that all entries of ``data.train`` share, if they share
        one; so has the input of nmt-translate.
        """
        default = recipe.directions.default_tags
        tags = (getattr(self, name) or default.get(name) for name in TAG_KEYS)
        return Direction(*self.langs(recipe), *tags)

    def is_tokenized(self, data: DataConfig) -> bool:
        """Return whether the files are Moses-tokenized, in a recipe with this group ``data``."""
        if self.tokenized is None:
            return data.tokenized and not self.table  # people write plain text into tables
        return self.tokenized


class CorpusEntry(Entry):
    """An entry of ``data.train``."""

    weight: float = key(
        1.0,
        "O",
        form=f"a number above 0 and at most {MAX_WEIGHT}; to leave a corpus out, remove its entry",
        gt=0,
        le=MAX_WEIGHT,
    )
    """how often an epoch has each pair, on average: 2.5 = twice, and a third time with probability
    0.5; an entry that is listed twice counts twice"""

    @property
    def copied(self) -> bool:
        """Whether this is monolingual text, on both sides (Currey et al. 2017)."""
        return self.src is not None and self.src == self.tgt


class HeldOutEntry(Entry):
    """An entry of ``data.dev`` or ``data.test``."""

    name: str | None = key(None, "O", form="letters, digits, - and _", pattern=r"^[A-Za-z0-9_-]+$")
    """name of the set in logs and files, for several sets; none = SRC-TGT"""
    select: bool = key(True, "O")
    """false = in data.dev: the set is scored and logged, but has no effect on the training, such as
    text of another domain"""
    other_refs: Annotated[list[NonEmpty], list_of(NonEmpty, "a file, or a list of files")] = key(
        [], "Papineni 2002"
    )
    """files with further references, with the lines of PATH.TGT; BLEU, chrF and TER use all
    references, perplexity only PATH.TGT"""

    def _broken_rules(self) -> Iterator[str]:
        yield from super()._broken_rules()
        if self.table:
            yield "path: a file of corrections is for data.train; give the prefix of two files"

    def label(self, recipe: Recipe) -> str:
        """Return ``name``; without one, SRC-TGT, or SRC for monolingual text."""
        return self.name or "-".join(dict.fromkeys(self.langs(recipe)))


def _dump_held_out(entries: list[HeldOutEntry], dump: SerializerFunctionWrapHandler) -> Any:
    values = dump(entries)
    return values[0] if len(values) == 1 and isinstance(values[0], str) else values


def _entries(entry: Any) -> BeforeValidator:
    item = Annotated[NonEmpty | entry, in_words("a path prefix, or a mapping that has path")]
    return list_of(item, "a path prefix, a mapping that has path, or a list of them", 1)


_SOME = Field(min_length=1)
CorpusEntries: TypeAlias = Annotated[list[CorpusEntry], _SOME, _entries(CorpusEntry)]
HeldOutEntries: TypeAlias = Annotated[
    list[HeldOutEntry], _SOME, WrapSerializer(_dump_held_out), _entries(HeldOutEntry)
]
