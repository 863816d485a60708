"""The rules of the command line, in all commands."""

from __future__ import annotations

import ast
import importlib
import os
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.cli import train, translate
from nmt.cli.parsers import MOVED, parse
from nmt.errors import UserError
from tests.words import COMMANDS

ROOT = Path(__file__).parents[2]
PARSERS: dict[str, ArgumentParser] = {
    name: importlib.import_module(module).parser() for name, module in COMMANDS.items()
}


def options(parser: ArgumentParser) -> dict[str, list[str]]:
    """Return the spellings of each option, by its long name."""
    return {
        action.option_strings[-1]: action.option_strings
        for action in parser._actions
        if action.option_strings
    }


@pytest.mark.slow
def test_every_parser_of_the_project_refuses_parts_of_options() -> None:
    assert not any(parser.allow_abbrev for parser in PARSERS.values())
    for path in [*(ROOT / "nmt").rglob("*.py"), *(ROOT / "data_prep").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ArgumentParser"):
                keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert keywords.get("allow_abbrev") == "False", path


def test_one_thing_has_one_name() -> None:
    for name, parser in PARSERS.items():
        of = options(parser)
        assert of.get("--output", ["-o", "--output"]) == ["-o", "--output"], name
        assert of.get("--force", ["--force"]) == ["--force"], name
        # nmt-score --src names a file, as --hyp and --ref do
        assert not {"--out", "--tgt", *(["--src"] if name != "nmt-score" else [])} & of.keys()
        assert [o for o in ("--debug", "--version") if o in of] == ["--debug", "--version"], name


TRAIN = (
    ("r.yaml --model.dim 64", "  -> recipe keys have no dashes: model.dim=VALUE\n"),
    ("r.yaml --seed=3", "arguments: --seed=3\n  -> recipe keys have no dashes: seed=3\n"),
    ("r.yaml --out x", "recipe keys have no dashes: out=VALUE\n"),
    ("r.yaml --reesume", "arguments: --reesume; did you mean --resume?\n"),
    ("r.yaml --force", "arguments: --force; did you mean --fresh?\n"),
    ("r.yaml --zzz", "arguments: --zzz\n"),
)
TRANSLATE = (
    ("run --model.dim 64", "arguments: --model.dim"),  # Python 3.14 takes 64 as a file
    ("run --beem=4", "arguments: --beem=4; did you mean --beam?\n"),
    ("run --src gl", "did you mean --src-lang?\n"),
    ("run --length 1", "did you mean --length-alpha or --length-penalty?\n"),
)


@pytest.mark.parametrize(
    ("command", "line", "hint"),
    [*((train, *row) for row in TRAIN), *((translate, *row) for row in TRANSLATE)],
)
def test_an_unknown_option_has_a_hint(command, line, hint, capsys):
    """A part of an option is not taken as another one."""
    with pytest.raises(SystemExit) as stop:
        command.main(line.split())
    assert stop.value.code == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(("command", "option"), MOVED)
def test_an_option_of_an_earlier_version_names_the_command_of_today(command, option, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(PARSERS[command], ["run", f"{option}=x"])
    assert stop.value.code == 2
    current = MOVED[command, option]
    assert current.split()[0] in COMMANDS
    assert f"error: there is no {option} any more; use {current}\n" in capsys.readouterr().err
    assert option not in options(PARSERS[command])


@pytest.fixture
def piped_input() -> Iterator[None]:
    """Make standard input a pipe."""
    kept, (reader, writer) = os.dup(0), os.pipe()
    os.dup2(reader, 0)
    yield
    os.dup2(kept, 0)
    for descriptor in (kept, reader, writer):
        os.close(descriptor)


@pytest.mark.usefixtures("piped_input")
@pytest.mark.parametrize(
    ("command", "line", "at"),
    [
        ("nmt-score", "--hyp /dev/stdin --ref /dev/stdin", "--hyp and --ref"),
        ("nmt-score", "--hyp a /dev/stdin /dev/fd/0 --ref a", "--hyp"),
        ("nmt-score", "--ref fifo --src fifo --hyp a", "--ref and --src"),
        ("nmt-translate", "run --input fifo --prefix fifo", "--input and --prefix"),
        ("nmt-translate", "run --score-target /dev/stdin", "--score-target and standard input"),
        ("nmt-translate", "run --glossary /dev/stdin", "--glossary and standard input"),
        ("nmt-translate", "run --input a --glossary /dev/stdin", None),
        ("nmt-documents", "run a.md -o d --glossary /dev/stdin", None),
        ("nmt-score", "--hyp /dev/stdin --ref fifo", None),
        ("nmt-score", "--hyp /dev/null --ref /dev/null", None),
    ],
)
def test_two_arguments_cannot_read_one_pipe(command, line, at, tmp_path, monkeypatch) -> None:
    """The second one would be empty, or each would get a part of the text."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    if at is None:
        parse(PARSERS[command], line.split())
        return
    with pytest.raises(UserError) as refused:
        parse(PARSERS[command], line.split())
    assert refused.value.at == at
