"""What the pages print works: commands run, recipes load, Python examples run, links resolve.

Each page with shell, recipe or Python blocks has an entry in PAGES, which says what the page takes
as given, and which of its commands are not run, with the reason. Recipes are made small.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import textwrap
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from nmt.cli.import_corpus import format_parser
from nmt.cli.main import commands, program
from nmt.config.load import load_recipe
from tests import words
from tests.shell import Shell, shell
from tests.words import RECIPE

ROOT = Path(__file__).resolve().parents[1]
# of fenced blocks: "text" is output, "bash" a file that a batch system runs
LANGUAGES = {"sh", "bash", "yaml", "python", "text", "diff", "json"}
NETWORK = "needs a network"
# the programs that the pages run, besides those of this project and python
PROGRAMS = set(
    "cat chmod cp do done echo for grep head mkdir paste printf shuf sort split".split()  # noqa: SIM905
)
SUGGEST = "times the machine; tests/apps/suggest"
SERVER = "runs until it is stopped; tests/apps/serve"
EXAMPLE = """\
import nmt

train = nmt.train
small = ["model.dim=16", "model.ffn_dim=32", "model.heads=2", "model.enc_layers=1",
         "model.dec_layers=1", "train.validate_every=2", "train.max_validations=1", "device=cpu"]
nmt.train = lambda recipe, overrides=(), **options: train(recipe, [*overrides, *small], **options)
"""  # before the Python blocks of a page: its runs take a second


@dataclass(frozen=True)
class Page:
    """What a page takes as given, besides the recipes that it prints.

    Attributes:
        recipes: recipes and their values, made small; RECIPE is from gl to en.
        corpora: folders with train, dev and test, and their languages.
        pairs: prefixes of parallel text, and its languages.
        texts: files with monolingual text.
        runs: finished runs of RECIPE.
        before: commands that make other runs and files.
        copies: files of the repository.
        name: of the recipe that the page prints without a name.
        updates: of each training.
        changed: parts of commands, and what replaces them for toy text.
        apart: whether each section starts again from what is given.
        not_run: beginnings of commands that are not run, and why.
    """

    recipes: dict[str, dict[str, Any]] = field(default_factory=dict)
    corpora: dict[str, str] = field(default_factory=dict)
    pairs: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    before: str = ""
    copies: tuple[str, ...] = ()
    name: str = ""
    updates: int = 2
    changed: dict[str, str] = field(default_factory=dict)
    apart: bool = False
    not_run: dict[str, str] = field(default_factory=dict)


GL_EN = {"gl-en.yaml": RECIPE}
CORPUS_ABOVE = {split: f"../corpus/{split}" for split in words.SIZES}
PAGES = {
    "README.md": Page(
        recipes=GL_EN,
        pairs={"raw": "gl en"},
        runs=("runs/quickstart",),
        before="paste raw.gl raw.en > pairs.tsv\nrm -r corpus",  # the page makes it
        changed={"-o corpus": "--dev-size 10 --test-size 10 -o corpus"},
        not_run={
            "nmt-suggest": SUGGEST,
            "nmt-serve": SERVER,
            "nmt-documents runs/gl-en letter.docx": "docs/howto/documents.md",
            "nmt-export runs/gl-en --format web": "tests/apps/export; it needs SentencePiece",
        },
    ),
    "docs/index.md": Page(
        recipes={"recipes/quickstart.yaml": {**RECIPE, "data": CORPUS_ABOVE}},
    ),
    "docs/tutorial.md": Page(
        before="rm -r corpus",  # the page makes it
        changed={"-o corpus": "--dev-size 10 --test-size 10 -o corpus"},
        not_run={
            "python -m venv": NETWORK,
            "pip install": NETWORK,
            "paste -d": "head ends before paste, which pipefail takes for a failure",
            "nmt-suggest": SUGGEST,
            "nmt-serve": SERVER,
            "curl": SERVER,
            "hf download": NETWORK,
            "nmt-convert": NETWORK,
            "nmt-translate runs/opus-mt-sk-en": NETWORK,
            "nmt-score --hyp parent.en": NETWORK,
            "nmt-train sk-en-parent.yaml": NETWORK,
            "nmt-score runs/sk-en runs/sk-en-parent": NETWORK,
        },
    ),
    "docs/python-api.md": Page(
        recipes={**GL_EN, "recipes/quickstart.yaml": {**RECIPE, "data": CORPUS_ABOVE}},
        runs=("runs/quickstart",),
    ),
    "docs/teaching.md": Page(
        recipes={
            f"recipes/{name}.yaml": {
                **RECIPE,
                "src": "sk",
                "data": {split: f"{root}/data/ui-sk-en/{split}" for split in words.SIZES},
                "model": {"norm": "layernorm", "fixnorm": False},  # base of the variants
                "analysis": {"every": 1, "observe": ["grad_total", "grad_l1"]},
            }
            for name, root in (("quickstart", ".."), ("laboratory/small", "../.."))
        },
        copies=("recipes/laboratory/claims.yaml",),
    ),
    "docs/howto/back-translation.md": Page(
        recipes={"gl-en.yaml": {**RECIPE, "data": {s: f"data/gl-en/{s}" for s in words.SIZES}}},
        texts={"mono.gl": "gl"},
        updates=40,  # a model that ends its sentences: the filters drop others
    ),
    "docs/howto/compare.md": Page(
        recipes=GL_EN,
        corpora={".": "en"},
        texts={"ours.en": "en", "theirs.en": "en", "test.gl": "gl"},
        runs=("runs/gl-en-1", "runs/gl-en-2"),
        copies=("tests/apps/judge/fill.py",),
        changed={
            "nmt-judge anna.xlsx ben.xlsx --key sheet.key.json\n": "python tests/apps/judge/"
            "fill.py\nnmt-judge anna.xlsx ben.xlsx --key sheet.key.json\n"
        },
        not_run={
            "pip install": NETWORK,
            "python -m venv": NETWORK,
            "comet-env/": NETWORK,
            "nmt-score --hyp ours.en theirs.en --ref test.en --src": NETWORK,
            "curl": NETWORK,
            "nmt-score --hyp ours.en theirs.en --ref test.en --metrics": "tests/scoring",
        },
    ),
    "docs/howto/corrections.md": Page(
        recipes=GL_EN,
        texts={"new.gl": "gl"},
        runs=("runs/gl-en",),
        copies=("tests/fixtures/corrections.tsv",),
        before="cp tests/fixtures/corrections.tsv corrections.tsv",
        not_run={"nmt-serve": SERVER},
    ),
    "docs/howto/glossary.md": Page(
        recipes=GL_EN,
        texts={"in.gl": "gl", "ref.en": "en"},
        runs=("runs/gl-en",),
        not_run={"nmt-serve": SERVER, "curl": SERVER},
    ),
    "docs/howto/documents.md": Page(
        runs=("runs/gl-en",),
        before="python -m tests.apps.documents.samples",
    ),
    "docs/howto/get-and-clean.md": Page(
        recipes=GL_EN,
        pairs={
            f"raw/{name}": "gl en"
            for name in ("talks", "books", "chapter-1", "chapter-2", "web", "dev", "test")
        },
        runs=("runs/gl-en",),
        before="paste raw/talks.gl raw/talks.en > pairs.tsv\n"
        "nmt-train gl-en.yaml src=en tgt=gl out=runs/en-gl\nrm -r corpus",  # the page makes it
        changed={"-o corpus": "--dev-size 10 --test-size 10 -o corpus"},
        not_run={
            "pip install": NETWORK,
            "nmt-suggest": SUGGEST,
            "nmt-clean raw/web -o clean/by-glotlid": NETWORK,
            "nmt-clean raw/train -o clean/train": "tests/data_prep/test_spelling.py",
            "nmt-clean raw/dev.shp": "tests/data_prep/test_spelling.py",
        },
    ),
    "docs/howto/gpus.md": Page(
        recipes=GL_EN,
        texts={"mono.gl": "gl"},
        runs=("runs/gl-en-1", "runs/gl-en-2", "runs/gl-en-3"),
        not_run={"sbatch": "needs Slurm", "torchrun": "needs several GPUs"},
    ),
    "docs/howto/offline.md": Page(
        not_run={
            "pip install": NETWORK,
            "pip download": NETWORK,
            "python -m venv": NETWORK,
            ".venv/bin/pip": NETWORK,
            "mkdocs build": "tests/test_site.py",
            "python -m http.server": SERVER,
        }
    ),
    "docs/howto/related-languages.md": Page(
        texts={"in.gl": "gl"},
        not_run={
            "sudo apt-get": NETWORK,
            "apertium": "needs packages of Debian",
            "wc -l": "needs the output of apertium",
            "cp es-en": "needs the output of apertium",
        },
    ),
    "docs/howto/report.md": Page(
        runs=("runs/quickstart", "runs/layernorm", "runs/scalenorm"),
        not_run={
            "pip install": NETWORK,
            "tensorboard": SERVER,
            "wandb": NETWORK,
            "nmt-train recipe.yaml train.wandb": NETWORK,
        },
    ),
    "docs/howto/serve.md": Page(
        not_run={
            "pip install": NETWORK,
            "nmt-serve": SERVER,
            "curl": SERVER,
            "docker": "needs Docker; tests/apps/serve/test_container.py",
        },
    ),
    "docs/howto/robust.md": Page(recipes=GL_EN),
    "docs/howto/sweeps.md": Page(
        recipes={"gl-en.yaml": {**RECIPE, "schedule": {"kind": "inverse_sqrt"}}},
        before="nmt-sweep --dry-run two-corpora.yaml",
        not_run={
            "nmt-sweep norms.yaml": "six runs; tests/apps/sweep",
        },
    ),
    "docs/howto/transfer.md": Page(
        recipes=GL_EN,
        corpora={"news": "gl en"},
        runs=("runs/pt-en", "runs/news"),
        apart=True,
    ),
    "docs/export.md": Page(recipes=GL_EN, runs=("runs/gl-en",)),
    "docs/howto/which-recipe.md": Page(recipes=GL_EN, not_run={"nmt-suggest": SUGGEST}),
}
# these have tests of their own, or none of their blocks can run
ELSEWHERE = {
    "docs/analysis.md": "tests/apps/plot",
    "docs/architecture.md": "no commands of users",
    "docs/commands.md": "tests/cli",
    "docs/data.md": "tests/data_prep",
    "docs/howto/public-models.md": "tests/apps/transformers/test_use.py",
    "docs/howto/shared-task.md": "tests/data_prep/test_repositories.py",
    "docs/extending.md": "tests/test_extending.py",
    "docs/one-update.md": "tests/test_one_update.py",
    "docs/papers.md": "tests/test_papers.py",
    "docs/recipe-keys.md": "generated",
    "docs/search-options.md": "tests/cli and tests/decoding, an option each",
}
EXPERIMENTS = "docs/experiments/"  # commands of hours


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def sections(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text, flags=re.M) if PAGES[page].apart else [text]


def blocks_of(text: str, language: str = "") -> list[Block]:
    """Return the fenced blocks of Markdown text, without indentation."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.M | re.S)
    every = [Block(name, textwrap.dedent(inside)) for name, inside in found]
    return [block for block in every if language in ("", block.language)]


def blocks(page: str, language: str = "") -> list[Block]:
    return blocks_of((ROOT / page).read_text(encoding="utf-8"), language)


def pages() -> list[str]:
    found = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def shell_lines(text: str) -> list[str]:
    """Return the lines of the shell blocks in a text; a command of several lines is one."""
    text = "".join(block.text for block in blocks_of(text, "sh"))
    return re.sub(r"\\\n\s*", " ", text).splitlines()


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command in a line of shell, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.wordchars += "$:,{}[]+=*@%"
    lexer.commenters = "#"
    found: list[str] = []
    skip = False
    for word in lexer:
        if set(word) <= set("|&;"):
            yield found
            found = []
        elif not set(word) <= set("<>"):
            if not skip:
                found.append(word)
            skip = False
            continue
        skip = set(word) <= set("<>")
    yield found


def lines_to_run(page: str, text: str) -> list[str]:
    """Return the lines of shell blocks that are safe to run; any other must be in ``not_run``."""
    not_run = tuple(PAGES[page].not_run)
    lines = [line for line in shell_lines(text) if not line.lstrip().startswith(not_run)]
    for line in lines:
        for name, *_ in filter(None, simple_commands(line)):
            known = name in (*words.COMMANDS, *PROGRAMS, "nmt", "python")
            assert known, f"{page}: is {name} safe to run? add it to PROGRAMS or to not_run"
    return lines


def recipes(page: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the values of each complete recipe or file of variants in a page."""
    for block in blocks(page, "yaml"):
        values = yaml.safe_load(block.text)
        if "src" in values or "base" in values:
            named = re.match(r"# (\S+\.yaml)\n", block.text)
            name = named[1] if named else PAGES[page].name
            assert name, f"{page}: a recipe without a first line such as # gl-en.yaml"
            yield name, values


# ---------------------------------------------------------------------------------- fast: all pages


@pytest.mark.parametrize("page", pages())
def test_a_page_with_blocks_has_an_entry(page):
    languages = {block.language for block in blocks(page)}
    if (
        page in ELSEWHERE
        or page.startswith(EXPERIMENTS)
        or not languages & {"sh", "yaml", "python"}
    ):
        assert page not in PAGES
        return
    assert page in PAGES, f"{page}: say in PAGES what its commands need"
    allowed = LANGUAGES | ({""} if page == "README.md" else set())  # tests/test_readme.py
    assert languages <= allowed, f"{page}: a block is {' or '.join(sorted(LANGUAGES))}"
    lines = shell_lines((ROOT / page).read_text(encoding="utf-8"))
    unknown = [start for start in PAGES[page].not_run if not any(start in line for line in lines)]
    assert not unknown, f"{page}: not_run names commands that the page lacks"


def parser_of(name: str, arguments: list[str]) -> ArgumentParser | None:
    """Return the parser of a command and take its name from the arguments of nmt, else None."""
    if name == "nmt":
        name = f"nmt-{arguments.pop(0)}"
    if name == "nmt-import":
        return format_parser(arguments.pop(0))
    name = name.removeprefix("nmt-")
    return program(commands()[name]).parser() if name in commands() else None


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_the_arguments_that_a_page_says(page, capsys):
    for line in shell_lines((ROOT / page).read_text(encoding="utf-8")):
        for name, *arguments in filter(None, simple_commands(line)):
            if parser := parser_of(name, arguments):
                try:
                    parser.parse_intermixed_args(arguments)
                except SystemExit:
                    pytest.fail(f"{page}: {line}\n{capsys.readouterr().err}")


@pytest.mark.parametrize("page", PAGES)
def test_files_of_batch_systems_are_bash_with_commands_of_this_project(page):
    for block in blocks(page, "bash"):
        subprocess.run(["bash", "-n", "-c", block.text], check=True)
        for line in block.text.splitlines():
            name, *arguments = [*shlex.split(line.partition("srun ")[2]), ""]
            if name in words.COMMANDS:
                importlib.import_module(words.COMMANDS[name]).parser().parse_args(arguments[:-1])


@pytest.mark.parametrize("page", PAGES)
def test_parts_of_recipes_have_keys_and_values_that_are_allowed(page, tmp_path, monkeypatch):
    """A complete recipe is tested with the commands that use it."""
    monkeypatch.chdir(tmp_path)
    words.recipe(Path("base.yaml"), RECIPE)
    base = yaml.safe_load(Path("base.yaml").read_text(encoding="utf-8"))
    for block in blocks(page, "yaml"):
        values = yaml.safe_load(block.text)
        if "src" not in values and "base" not in values:
            merged = {**base, **values}
            merged["data"] = {**base["data"], **values.get("data", {})}
            Path("part.yaml").write_text(yaml.safe_dump(merged), encoding="utf-8")
            load_recipe("part.yaml")


def test_the_recipe_for_back_translation_is_what_its_command_says(tmp_path, monkeypatch):
    page = "docs/howto/back-translation.md"
    monkeypatch.chdir(tmp_path)
    Path("gl-en.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    block, *_ = blocks(page, "yaml")
    commands = "".join(block.text for block in blocks(page, "sh")).splitlines()
    [command] = [line for line in commands if "<bt>" in line]
    [_, recipe, *overrides] = shlex.split(command)
    text = Path(recipe).read_text(encoding="utf-8")
    changed = re.sub(r"^  train:.*\n", block.text.removeprefix("data:\n"), text, flags=re.M)
    Path("changed.yaml").write_text(changed, encoding="utf-8")
    by_file = load_recipe(Path("changed.yaml"), ["out=runs/gl-en-bt"])
    assert by_file.data == load_recipe(Path(recipe), overrides).data


# ------------------------------------------------------------------------- slow: the pages that run


@pytest.fixture(scope="module")
def bash(tmp_path_factory) -> Iterator[Shell]:
    with shell(tmp_path_factory.mktemp("shell")) as started:
        yield started


@pytest.fixture(scope="module")
def finished_run(bash, tmp_path_factory) -> Path:
    """Return the folder of a small run from gl to en, with its corpus next to it."""
    folder = tmp_path_factory.mktemp("finished")
    words.corpus(folder / "corpus", ("gl", "en"))
    words.recipe(folder / "gl-en.yaml", RECIPE)
    bash.run("nmt-train gl-en.yaml", folder)
    return folder / "runs" / "gl-en"


def entries(values: Any) -> Iterator[dict[str, Any]]:
    """Yield the entries of a value of data.train, data.dev or data.test."""
    for entry in values if isinstance(values, list) else [values]:
        yield entry if isinstance(entry, dict) else {"path": entry}


def write_corpora(folder: Path, values: dict[str, Any]) -> None:
    """Write a toy corpus wherever a recipe names one that does not exist."""
    named = [values["data"].get(split) for split in words.SIZES]
    named.append(values.get("segment", {}).get("learn_from"))
    for entry in [entry for value in named if value for entry in entries(value)]:
        langs = [entry.get(side) or values.get(side) for side in ("src", "tgt")]
        path = folder / entry["path"]
        for lang in filter(None, langs):
            if not Path(f"{path}.{lang}").exists():
                words.split(path, lang)


def write_given(folder: Path, page: str, run: Path, commands: str) -> None:
    """Write what a page takes as given, and the recipes that it prints.

    A run that the commands train themselves is not given.
    """
    given = PAGES[page]
    for name, langs in given.corpora.items():
        words.corpus(folder / name, langs.split())
    for name, langs in given.pairs.items():
        for lang in langs.split():
            words.split(folder / name, lang)
    for name in given.copies:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name, lang in given.texts.items():
        words.text(folder / name, lang)
    for name, values in {**given.recipes, **dict(recipes(page))}.items():
        if "base" in values:
            (folder / name).write_text(yaml.safe_dump(values), encoding="utf-8")
        else:
            words.recipe(folder / name, values, given.updates)
    for path in folder.rglob("*.yaml"):
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "src" in values:
            write_corpora(path.parent, values)
    for name in given.runs:
        if f"nmt-train {Path(name).name}.yaml\n" in commands:
            continue
        shutil.copytree(run, folder / name)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_and_examples_run_in_order(page, bash, finished_run, tmp_path):
    for number, section in enumerate(sections(page)):
        folder = tmp_path / str(number)
        commands = "".join(f"{line}\n" for line in lines_to_run(page, section))
        examples = "".join(block.text for block in blocks_of(section, "python"))
        if not commands and not examples:
            continue
        for part, replacement in PAGES[page].changed.items():
            assert part in commands, f"{page}: no command has {part}"
            commands = commands.replace(part, replacement)
        folder.mkdir()
        write_given(folder, page, finished_run, commands)
        bash.run(f"{PAGES[page].before}\n{commands}", folder)
        if examples:
            (folder / "examples.py").write_text(EXAMPLE + examples, encoding="utf-8")
            bash.run("python examples.py", folder)
