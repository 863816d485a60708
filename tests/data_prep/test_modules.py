"""Every corpus that a recipe may name has a prepare and a command."""

import importlib
from pathlib import Path

import pytest
import yaml

from data_prep import CORPORA

FOLDER = Path(__file__).parents[2]
GENERIC = sorted(path.stem for path in (FOLDER / "data_prep").glob("from_*.py"))


def test_recipes_name_them():
    recipes = [yaml.safe_load(p.read_text("utf-8")) for p in (FOLDER / "recipes").glob("*.yaml")]
    named = {recipe["data"]["prepare"] for recipe in recipes if "prepare" in recipe["data"]}
    assert named <= set(CORPORA)


@pytest.mark.parametrize("name", CORPORA)
def test_prepare_is_there(name):
    assert callable(importlib.import_module(f"data_prep.{name}").prepare)


@pytest.mark.parametrize("name", [*CORPORA, *GENERIC])
def test_help(name, capsys):
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(f"data_prep.{name}").main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--out" in text
    assert ("--from" in text) == (name in CORPORA)


def test_the_documentation_has_a_row_for_each():
    text = (FOLDER / "docs" / "data.md").read_text("utf-8")
    rows = [line.split("|")[1].strip(" `") for line in text.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(CORPORA)
    for name in GENERIC:
        assert f"python -m data_prep.{name} " in text
