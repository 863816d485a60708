"""The rules of the command line, in all commands."""

from __future__ import annotations

import ast
import importlib
from argparse import ArgumentParser
from pathlib import Path

import pytest

from nmt.cli import train, translate
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


def test_every_parser_of_the_project_refuses_parts_of_options() -> None:
    assert not any(parser.allow_abbrev for parser in PARSERS.values())
    for path in [*(ROOT / "nmt").rglob("*.py"), *(ROOT / "data_prep").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ArgumentParser"):
                keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert keywords.get("allow_abbrev") == "False", path


def test_a_part_of_an_option_is_not_taken_as_another_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        translate.main(["run", "--max-len", "10"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith(
        "arguments: --max-len 10; did you mean --max-len-offset?\n"
    )


def test_one_thing_has_one_name() -> None:
    for name, parser in PARSERS.items():
        of = options(parser)
        assert of.get("--output", ["-o", "--output"]) == ["-o", "--output"], name
        assert of.get("--force", ["--force"]) == ["--force"], name
        # nmt-score --src names a file, as --hyp and --ref do
        assert not {"--out", "--tgt", *(["--src"] if name != "nmt-score" else [])} & of.keys()
        assert [o for o in ("--debug", "--version") if o in of] == ["--debug", "--version"], name


@pytest.mark.parametrize(
    ("command", "argv", "message"),
    [
        (translate, ["run", "--src", "gl"], "did you mean --src-lang?"),
        (train, ["x.yaml", "--out", "x"], "recipe keys have no dashes: out=VALUE"),
    ],
)
def test_a_near_name_is_answered_with_the_option(
    command, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(argv)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
