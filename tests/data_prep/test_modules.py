"""Every corpus that a recipe may name has a prepare, a command and a row in docs/data.md."""

import importlib
import importlib.util
from pathlib import Path

import pytest
import yaml

from data_prep import CORPORA

FOLDER = Path(__file__).parents[2]
GENERIC = sorted(path.stem for path in (FOLDER / "data_prep").glob("from_*.py"))


def test_recipes_download_registered_corpora():
    recipes = [yaml.safe_load(p.read_text("utf-8")) for p in (FOLDER / "recipes").glob("*.yaml")]
    named = {recipe["data"]["download"] for recipe in recipes if "download" in recipe["data"]}
    assert named
    assert named <= set(CORPORA)


@pytest.mark.parametrize("name", [*CORPORA, *GENERIC])
def test_each_module_has_a_command_and_each_corpus_has_prepare(name, capsys):
    module = importlib.import_module(f"data_prep.{name}")
    assert hasattr(module, "prepare") or name in GENERIC
    with pytest.raises(SystemExit) as caught:
        module.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "--output" in text
    assert ("--from" in text) == (name in CORPORA)


def test_the_documentation_has_a_row_for_each():
    text = (FOLDER / "docs" / "data.md").read_text("utf-8")
    table = text.partition("\n| NAME |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].strip(" `") for line in table.splitlines()[2:]]
    assert sorted(rows) == sorted(CORPORA)
    for name in GENERIC:
        assert f"nmt import {name.removeprefix('from_')} " in text


def test_a_module_registers_by_its_file_name():
    assert {"ted_talks", "ui_sk_en", "wmt14_en_de"} <= set(CORPORA)
    assert not {"command", "from_tsv", "pairs", "remote"} & set(CORPORA)
