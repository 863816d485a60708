"""Every module that a recipe may name has a prepare and a command."""

import importlib
from pathlib import Path

import pytest
import yaml

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
MODULES = {yaml.safe_load(path.read_text("utf-8"))["data"].get("prepare") for path in RECIPES}
COMMANDS = sorted((MODULES - {None}) | {"multi30k_en_de"})
GENERIC = ["ted_talks", "flores", "from_moses", "from_tsv", "from_tmx", "from_gettext"]


@pytest.mark.parametrize("name", COMMANDS)
def test_prepare_is_there(name):
    assert callable(importlib.import_module(f"data_prep.{name}").prepare)


@pytest.mark.parametrize("name", COMMANDS + GENERIC)
def test_help(name, capsys):
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(f"data_prep.{name}").main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--out" in text
    assert ("--from" in text) == (not name.startswith("from_"))
