"""docs/papers.md: all code, recipes, keys, figures and links that it references exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from nmt.apps.plot.figures import FIGURES
from nmt.config.load import load_recipe
from nmt.config.recipe import groups
from nmt.config.schema import keys_of
from nmt.config.variants import load_sweep

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
FOLDERS = [
    f"recipes/{name}"
    for name in ("papers/transformers-without-tears", "papers/normformer", "laboratory")
]
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
PLACES = [q for q in QUOTED if re.fullmatch(r"[\w/]+\.py:[\w.]+", q)]
FILES = [q for q in QUOTED if re.fullmatch(r"[\w/-]+\.yaml( [\w/.-]+)?", q)]
KEYS = [q for q in QUOTED if re.fullmatch(rf"({'|'.join(groups())})\.\w+(: .+)?", q)]


@functools.cache
def definitions(file: Path) -> set[str]:
    """Return functions, classes, methods and top-level variables of a file."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found |= {f"{node.name}.{n.name}" for n in inner if isinstance(n, ast.FunctionDef)}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_page_has_many_references():
    assert min(len(PLACES), len(FILES), len(KEYS)) > 20


def test_referenced_code_exists():
    named = [place.split(":") for place in PLACES]
    assert [(file, name) for file, name in named if name not in definitions(ROOT / file)] == []


@pytest.mark.slow
def test_referenced_recipes_and_variants_load():
    for named in FILES:
        name, _, variant = named.partition(" ")
        path = next(path for folder in FOLDERS if (path := ROOT / folder / name).is_file())
        if "\nbase:" not in path.read_text(encoding="utf-8"):
            load_recipe(path)
        elif variant:
            load_recipe(path, variant=variant)
        else:
            assert load_sweep(path).variants, named


def test_referenced_keys_accept_their_values():
    for named in KEYS:
        path, _, value = named.partition(": ")
        group, _, key = path.partition(".")
        fields: list[FieldInfo] = [
            keys_of(model)[key] for model in groups()[group].values() if key in keys_of(model)
        ]
        if key == "kind" and "" not in groups()[group]:
            assert value in groups()[group], named
            continue
        assert fields, path
        if value:
            for field in fields:
                TypeAdapter(field.annotation).validate_python(value)


def test_referenced_figures_are_those_of_nmt_plot():
    drawn = {q.partition(" ")[2] for q in QUOTED if q.startswith("nmt-plot ")}
    assert drawn == set(FIGURES)


def test_every_recipe_of_the_papers_is_listed():
    for folder in FOLDERS:
        for path in (ROOT / folder).glob("[tn]-*.yaml"):
            assert f"`{path.name}" in TEXT
    for name in ("gl-en", "sk-en", "en-vi", "en-he", "ar-en", "wmt14-en-de"):
        assert f"`{name}.yaml`" in TEXT


def test_every_part_of_the_papers_has_a_row():
    tears, _, normformer = TEXT.partition("\n## NormFormer")
    rows = [f"| eq. {n} " for n in range(1, 8)] + [f"| table {n}" for n in range(1, 9)]
    rows += [f"| figure {n} " for n in range(1, 5)]
    assert [row for row in rows if f"\n{row}" not in tears] == []
    assert all(f"### Appendix {letter}" in tears for letter in "AC")
    rows = [f"| table {n} " for n in range(1, 8)] + [f"| figure {n} " for n in range(1, 8)]
    assert [row for row in rows if f"\n{row}" not in normformer] == []
