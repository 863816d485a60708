"""Train and use translation models for low-resource languages.

Public names: ``train``, ``TrainingResult``, ``Translator``, ``load_recipe``,
``Transformer``, ``model_config`` and ``Recipe``; docs/python-api.md has examples. A name is
imported when it is first used. So importing the package is fast, and the commands can configure the
allocator before torch is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nmt.version import __version__ as __version__

if TYPE_CHECKING:
    from nmt.config.load import load_recipe as load_recipe
    from nmt.config.model import model_config as model_config
    from nmt.config.recipe import Recipe as Recipe
    from nmt.decoding.translator import Translator as Translator
    from nmt.model.transformer import Transformer as Transformer
    from nmt.session import TrainingResult as TrainingResult
    from nmt.session import train as train

_MODULES = {
    "Recipe": "nmt.config.recipe",
    "load_recipe": "nmt.config.load",
    "model_config": "nmt.config.model",
    "Transformer": "nmt.model.transformer",
    "Translator": "nmt.decoding.translator",
    "train": "nmt.session",
    "TrainingResult": "nmt.session",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
