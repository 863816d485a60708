"""What to expect: the table is in docs/results.md, and its rows are found by size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmt.apps.suggest.scoreboard import ROWS, nearest, table

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
RESULTS = (DOCS / "results.md").read_text(encoding="utf-8")
EXPERIMENTS = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("experiments/*.md"))


def test_the_table_is_in_the_results():
    assert f"\n{table()}\n" in RESULTS, "python -m nmt.apps.suggest.scoreboard prints the table"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe)
def test_each_row_has_its_experiment(row):
    """The score is also where the training is described, and the recipe exists."""
    assert row.bleu in EXPERIMENTS
    assert f"{row.pairs:,}" in EXPERIMENTS
    assert (ROOT / row.recipe).is_file()


def test_the_nearest_rows_come_first():
    for row in ROWS:
        assert nearest(row.words)[0].words == row.words
        assert row in nearest(row.words)
    assert nearest(0)[0].words == min(row.words for row in ROWS)
    assert nearest(10**9)[0].words == max(row.words for row in ROWS)


def test_figures_of_the_page_about_recipes_are_in_the_results():
    page = (DOCS / "howto" / "which-recipe.md").read_text(encoding="utf-8")
    figures = re.findall(r"\d+\.\d+ \[\d+\.\d+, \d+\.\d+\]|\d{1,3}(?:,\d{3})+", page)
    assert figures
    measured = [figure for figure in figures if not figure.endswith(",000")]  # not a range
    assert [figure for figure in measured if figure not in RESULTS + EXPERIMENTS] == []
