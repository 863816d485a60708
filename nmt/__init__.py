"""NMT training toolkit for low-resource translation.

The names below are loaded when they are first used, so that importing the package is cheap and the
commands can set torch's allocator before torch is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.config.load import load_recipe as load_recipe
    from nmt.config.recipe import Recipe as Recipe
    from nmt.decoding.translator import Translator as Translator
    from nmt.model.transformer import Transformer as Transformer

__version__ = "0.2.0"

_HOMES = {
    "Recipe": "nmt.config.recipe",
    "load_recipe": "nmt.config.load",
    "Transformer": "nmt.model.transformer",
    "Translator": "nmt.decoding.translator",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
