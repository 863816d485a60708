"""docs/tutorial.ipynb runs from its first to its last cell, with toy text."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.config.load import as_recipe, load_recipe
from tests import words
from tests.apps.transformers import folders
from tests.test_pages import recipes

nbformat = pytest.importorskip("nbformat", reason='needs pip install -e ".[test]"')
ROOT = Path(__file__).resolve().parents[1]
TOY = """
src, tgt, raw, held_out, parent = "gl", "en", "raw/numbers", 10, {parent!r}
sentence, license = "un dous tres", "cc0-1.0"
dim, layers, types, updates = 16, 1, 40, 16
"""
CPU = """
recipe |= {"device": "cpu", "precision": "fp32"}
recipe["schedule"] |= {"total_updates": 16, "warmup_updates": 1}
recipe["train"] |= {"validate_every": 2, "stop_patience": 9}
"""


@pytest.fixture
def notebook() -> Any:
    return nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)


def cell(notebook: Any, tag: str) -> Any:
    """Return the only cell with a tag."""
    (found,) = [c for c in notebook.cells if tag in c.metadata.get("tags", ())]
    return found


def printed(notebook: Any) -> Iterator[str]:
    for output in (output for c in notebook.cells for output in c.get("outputs", ())):
        yield output.get("text") or output.get("data", {}).get("text/plain", "")


def test_the_notebook_is_stored_without_outputs(notebook):
    """Nobody would see that an output is old; the page of the tutorial shows them."""
    nbformat.validate(notebook)
    for c in notebook.cells:
        assert not c.get("outputs")
        assert c.get("execution_count") is None


def test_its_recipe_is_that_of_the_tutorial(notebook, tmp_path):
    """All but the number format, which depends on the device."""
    values: dict[str, Any] = {}
    exec(cell(notebook, "parameters").source + "\n" + cell(notebook, "recipe").source, values)
    path = tmp_path / "recipe.yaml"
    ((name, printed_recipe),) = recipes("docs/tutorial.md")
    path.write_text(words.yaml.safe_dump(printed_recipe), encoding="utf-8")
    here = {"out": tmp_path / "run", "data": None, "precision": "auto"}
    ours, theirs = as_recipe(values["recipe"], [], None), load_recipe(path)
    assert ours.model_copy(update=here) == theirs.model_copy(update=here)
    assert ours.data.batch_tokens == theirs.data.batch_tokens
    assert name == f"{ours.src}-{ours.tgt}.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("parent", [None, "folder-of-the-parent"])
def test_all_cells_run(notebook, tmp_path, monkeypatch, parent):
    """Only installation and download are left out, and the parameters are those of a toy."""
    nbclient = pytest.importorskip("nbclient")
    for package in ("ipykernel", "ctranslate2", *(["transformers"] if parent else [])):
        pytest.importorskip(package, reason='needs pip install -e ".[test,transformers]"')
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for lang in ("gl", "en"):
        words.split(tmp_path / "raw" / "numbers", lang)
    if parent:
        folders.marian(tmp_path / "public")
        (tmp_path / "public" / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n")
        tokenizer = tmp_path / "public" / "tokenizer_config.json"
        text = tokenizer.read_text(encoding="utf-8").replace("eng", "glg").replace("fra", "eng")
        tokenizer.write_text(text, encoding="utf-8")
    cell(notebook, "install").source = cell(notebook, "download").source = "pass"
    cell(notebook, "parameters").source = TOY.format(parent=parent)
    cell(notebook, "finetune").source += CPU
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    text = "\n".join(printed(notebook))
    assert "reference:" in text
    assert text.count("update ") >= 8  # a line for each validation
    assert "test scores" in text
    assert (tmp_path / "runs" / "gl-en" / "init.json").is_file() is bool(parent)
    assert "un dous tres" in (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")
    assert (tmp_path / "model.zip").stat().st_size > 10_000
