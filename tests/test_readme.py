"""README's commands and figures are right, as is its first recipe; links of all pages resolve."""

from __future__ import annotations

import importlib
import re
import shlex
from argparse import ArgumentParser
from pathlib import Path

import pytest

import nmt
from nmt.cli import train
from nmt.config.load import load_recipe
from tests.test_pages import blocks_of
from tests.toy import toy_corpus
from tests.words import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "recipes" / "papers" / "transformers-without-tears"
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
WHICH_RECIPE = (ROOT / "docs" / "howto" / "which-recipe.md").read_text(encoding="utf-8")
PARSERS: dict[str, ArgumentParser] = {
    name: importlib.import_module(module).parser() for name, module in COMMANDS.items()
}


def section(title: str, page: str = README) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.fixture
def own_recipe(tmp_path) -> Path:
    """The recipe of docs/howto/which-recipe.md next to a corpus with the names that it uses."""
    toy_corpus(tmp_path / "corpus", {"train": 60, "dev": 5, "test": 5})
    (block,) = blocks_of(WHICH_RECIPE, "yaml")
    path = tmp_path / "gl-en.yaml"
    path.write_text(block.text, encoding="utf-8")
    return path


def test_the_two_commands_are_what_ci_runs():
    commands = [block.text.strip() for block in blocks_of(README) if not block.language]
    assert commands == [
        "pip install -c constraints.txt -e . && nmt-train recipes/quickstart.yaml",
        'pip install -c constraints.txt -e ".[test]" && pytest',
    ]
    ci = (
        (ROOT / ".ci" / "run")
        .read_text(encoding="utf-8")
        .replace("pip install -q ", "pip install ")
        .replace("\\\n", " ")
    )
    lines = [shlex.split(line, comments=True) for line in ci.splitlines()]
    for command in commands:
        for part in command.split(" && "):
            words = shlex.split(part)
            assert any(line[: len(words)] == words for line in lines), part


def test_the_recipe_reads_and_its_corpus_is_found(own_recipe, tmp_path):
    recipe = load_recipe(own_recipe)
    assert [entry.path for entry in recipe.data.train] == [str(tmp_path / "corpus" / "train")]
    assert recipe.data.test is not None
    assert recipe.data.test[0].path == str(tmp_path / "corpus" / "test")
    command = [str(own_recipe), "--dry-run", "device=cpu", f"out={tmp_path / 'run'}"]
    assert train.main(command) == 0
    assert not (tmp_path / "run").exists()


def test_everything_else_is_the_papers_strongest_setting(own_recipe):
    said = " ".join(section("Write a recipe yourself", WHICH_RECIPE).split())
    assert (
        "PreNorm + FixNorm + ScaleNorm, SmallInit, Adam, 8000 updates of warm-up, "
        "label smoothing 0.1, batches of 4096 tokens" in said
    )
    recipe = load_recipe(own_recipe)
    model = recipe.model
    assert (model.norm_place, model.fixnorm, model.norm, model.init) == (
        "pre",
        True,
        "scalenorm",
        "small",
    )
    assert (recipe.optim.kind, recipe.optim.label_smoothing) == ("adam", 0.1)
    assert (recipe.schedule.kind, recipe.schedule.warmup_updates) == ("inverse_sqrt", 8000)
    assert recipe.data.batch_tokens == 4096


def test_sizes_and_length_are_the_papers_for_10k_pairs(own_recipe):
    """Those of recipes/papers/transformers-without-tears/gl-en.yaml, and the end is the paper's."""
    own, paper = load_recipe(own_recipe), load_recipe(PAPER / "gl-en.yaml")
    assert own.model == paper.model
    assert own.train == paper.train
    assert own.train.validate_every * own.train.max_validations == 100_000
    assert own.schedule == paper.schedule
    assert own.segment == paper.segment


def test_overrides_in_the_text_are_right(own_recipe):
    lines = "\n".join(block.text for block in blocks_of(README, "sh")).splitlines()
    commands = [
        shlex.split(line, comments=True)
        for line in lines
        if line.startswith("nmt-train ") and "=" in line
    ]
    assert commands
    for _, recipe, *overrides in commands:
        assert recipe == own_recipe.name
        load_recipe(own_recipe, overrides)


def test_its_results_are_those_of_the_results():
    rows = [line.split("|") for line in section("Five results").splitlines() if line[:1] == "|"]
    scores = [row[-2].strip() for row in rows[2:]]
    assert len(scores) == 5
    assert [score for score in scores if score not in RESULTS] == []
    quoted = re.findall(r"\b\d\d\.\d\d\b", README.partition("\n## ")[0])
    assert [figure for figure in quoted if figure not in RESULTS] == []


def test_its_scores_next_to_public_systems_are_those_of_the_page():
    page = (ROOT / "docs/experiments/public-benchmarks.md").read_text(encoding="utf-8")
    figures = re.findall(r"\d+\.\d+", section("Next to public systems"))
    assert len(figures) == 22
    assert [figure for figure in figures if figure not in page] == []


def test_documented_commands_and_options_exist():
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| \[`(nmt-\w+)", page, re.M)) == set(PARSERS)
    for name, parser in PARSERS.items():
        known = parser.format_help()
        text = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        options = set(re.findall(r"^\| `(--[a-z-]+)", text, re.M))
        assert {option for option in options if option not in known} == set(), name


def test_the_version_is_the_changelogs_newest_and_the_citations():
    newest = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    assert newest
    assert cited
    assert newest[1] == cited[1] == nmt.__version__


def anchors(page: Path) -> set[str]:
    """Return the anchors of a Markdown page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


FILE = r"`((?:nmt|data_prep|tests|recipes|docs|benchmarks)/[\w/.*-]+)[`:]"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]


def test_files_of_the_repository_that_a_page_names_exist():
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            names = re.findall(FILE, page.read_text(encoding="utf-8"))
            assert [name for name in names if not list(ROOT.glob(name.rstrip("/")))] == [], page


def test_links_lead_to_files_and_headings():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if link.startswith(("https://", "http://")):
                continue
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), f"{page}: {link}"
            assert not anchor or anchor in anchors(target), f"{page}: {link}"


def test_every_page_is_reachable_from_the_index():
    """An experiment from the results."""
    linked: set[str] = set()
    for page in ("index.md", "results.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        linked |= {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)}
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index.md"} <= linked


def test_each_folder_of_recipes_has_a_row_in_its_page():
    folder = ROOT / "recipes"
    rows = re.findall(r"^\| `([^`]+)` \|", (folder / "README.md").read_text("utf-8"), re.M)
    recipes = [path.relative_to(folder) for path in folder.rglob("*.yaml")]
    top = {str(path) for path in recipes if len(path.parts) == 1}
    assert sorted(rows) == sorted(top | {f"{path.parent}/" for path in recipes if path.parts[1:]})
