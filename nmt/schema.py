"""What every group of recipe keys is built from: a frozen model that refuses unknown keys."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A group of recipe keys: frozen, unknown keys forbidden, defaults checked like values."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def key(default: Any, meaning: str, source: str, **limits: Any) -> Any:
    """One recipe key: default (``...`` = required), one-sentence meaning, where it comes from.

    ``source`` names paper and place (T = Transformers without Tears, N = NormFormer, A = T's
    released code, V = Vaswani et al. 2017, W = Wu et al. 2016, O = ours). ``limits`` are pydantic's
    (``gt``, ``ge``, ``le``, ...). The key table of README is generated from these fields.
    """
    return Field(default, description=meaning, json_schema_extra={"source": source}, **limits)
