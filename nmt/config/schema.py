"""How the keys of recipes are declared: a class for each group, with rules between its keys."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

NONE = ("none", "null", "~", "")  # no value, where a key may have none
_DIGITS = r"\d+(?:_\d+)*"
_ODD_NUMBER = re.compile(  # pydantic reads 08 as 8, 1_000 as 1000, 1e-5_0 as 1e-50
    rf"[-+]?0\d+|(?=.*_)[-+]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][-+]?{_DIGITS})?",
    re.ASCII,
)


def is_none(value: Any) -> bool:
    """Return whether a text means that a key has no value."""
    return isinstance(value, str) and value.lower() in NONE


class ConfigBase(BaseModel):
    """A group of recipe keys: immutable, without unknown keys, defaults checked like values.

    Values may be text, as in a recipe: the type of a key decides what a text means.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, meaning in meanings(cls).items():
            properties[name]["description"] = meaning
        return schema

    def _broken_rules(self) -> Iterator[str]:
        """Yield what contradicts between the keys; each message names them."""
        yield from ()

    @model_validator(mode="after")
    def _check_rules(self) -> ConfigBase:
        if broken := list(self._broken_rules()):
            raise ValueError("\n".join(broken))
        return self

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        read, odd = dict(values), []
        for key, field in keys_of(cls).items():
            text, types = values.get(key), leaf_types(field.annotation)
            if type(None) in types and is_none(text):
                read[key] = None
            elif isinstance(text, str) and {int, float} & {*types} and _ODD_NUMBER.fullmatch(text):
                plain = re.sub(r"^([-+]?)0+(?=\d)", r"\1", text.replace("_", ""))
                odd.append(f'{key}: "{text}" can be read in two ways; write {plain}')
        if odd:
            raise ValueError("\n".join(odd))
        return read


def key(default: Any, source: str, form: str | None = None, **limits: Any) -> Any:
    """Return the field of one recipe key; the text below it in its class says what it does.

    Args:
        default: ``...`` = required.
        source: paper and place: T = Transformers without Tears, A = T's released code,
            N = NormFormer, V = Vaswani et al. 2017, W = Wu et al. 2016, O = ours.
        form: what a text must look like, in words.
        limits: pydantic's (``gt``, ``ge``, ``pattern``, ...).
    """
    extra: dict[str, JsonValue] = {"source": source}
    if form:
        extra["form"] = form
    return Field(default, json_schema_extra=extra, **limits)


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a group under the names that a recipe uses."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of each key of a group: the text below it in its class."""
    texts: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if issubclass(parent, ConfigBase):
            texts |= _texts_below_keys(parent.__module__).get(parent.__name__, {})
    fields = model.model_fields.items()
    return {f.alias or name: texts[name] for name, f in fields if name in texts}


@functools.cache
def _texts_below_keys(module: str) -> dict[str, dict[str, str]]:
    """Return the text below each key, for each class of a module.

    pydantic's setting ``use_attribute_docstrings`` would add 30 ms to the start of each command.
    """
    texts: dict[str, dict[str, str]] = {}
    for group in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(group, ast.ClassDef):
            texts[group.name] = {
                ast.unparse(key.target): " ".join(ast.literal_eval(text.value).split())
                for key, text in itertools.pairwise(group.body)
                if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr)
            }
    return texts


def leaf_types(annotation: Any) -> list[Any]:
    """Return the types in an annotation: ``[int, None]`` for ``list[int] | None``."""
    inner = [leaf for argument in get_args(annotation) for leaf in leaf_types(argument)]
    return inner or [annotation]


def models_of(annotation: Any) -> dict[str, type[BaseModel]]:
    """Return the groups that a key may hold by their kinds; the kind is "" if there is only one."""
    types = leaf_types(annotation)
    models = [leaf for leaf in types if isinstance(leaf, type) and issubclass(leaf, BaseModel)]
    if len(models) == 1:
        return {"": models[0]}
    return {model.model_fields["kind"].default: model for model in models}


def in_words(form: str, **limits: Any) -> Any:
    """Return what describes the values of a type in errors and docs; limits are pydantic's."""
    return Field(json_schema_extra={"form": form}, **limits)


def list_of(item: Any, form: str, min_length: int = 0) -> BeforeValidator:
    """Return what lets a key that is a list also hold a single item.

    Args:
        item: type of an item; this, ``form`` and ``min_length`` are for the JSON schema.
        form: what the key may hold, in words.
        min_length: number of items that the list has at least.
    """
    several = Annotated[list[item], Field(min_length=min_length)]

    def as_list(value: Any) -> Any:
        return [value] if isinstance(value, (str, Path, dict, BaseModel)) else value

    return BeforeValidator(
        as_list, json_schema_input_type=Annotated[item | several, in_words(form)]
    )
