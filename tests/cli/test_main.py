"""nmt: all commands under one name, and their completion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import nmt
from data_prep.formats import CORPORA, IMPORTERS
from nmt.cli import completion
from nmt.cli.main import commands, main, program
from nmt.cli.parsers import _Help
from tests import words
from tests.cli.test_startup import run

ROOT = Path(__file__).parents[2]
ALL = commands()
LINES = 48  # of a screen


@pytest.fixture(autouse=True)
def own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["nmt"])  # nmt changes it
    monkeypatch.setenv("COLUMNS", "80")


def helped(*argv: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_nmt_lists_all_commands_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(argv) for argv in ([], ["--help"], ["-h"])] == [0, 0, 0]
    out = capsys.readouterr().out
    listed = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert {*ALL, "130", "143"} <= listed
    assert {f"nmt-{name}" for name in ALL} == words.COMMANDS.keys()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"nmt {nmt.__version__}\n"


@pytest.mark.parametrize("name", ALL)
def test_the_help_of_a_command_fits_a_screen_and_has_examples(name, capsys):
    out = helped(name, "--help", capsys=capsys)
    assert out.startswith(f"usage: nmt {name} ")
    assert len(out.splitlines()) <= LINES
    assert max(map(len, out.splitlines())) <= 80
    examples = out.partition("\nexamples:\n")[2].partition("\n\n")[0].splitlines()
    assert len(examples) == 3
    assert "exit codes" not in out
    if "--help-all" in out:
        everything = helped(name, "--help-all", capsys=capsys)
        assert len(everything) > len(out)
        assert max(map(len, everything.splitlines())) <= 80


def test_every_importer_has_a_line_and_a_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import"]) == 0
    out = capsys.readouterr().out
    assert IMPORTERS == ("gettext", "moses", "noise", "tmx", "tsv")
    for name in (*IMPORTERS, *CORPORA):
        assert f"\n  {name} " in out
        shown = helped("import", name, "--help", capsys=capsys)
        assert shown.startswith(f"usage: nmt import {name} ")
        assert f"nmt-import {name} " in shown.partition("\n\n")[2]
        assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian"], "nmt: no command 'trian'; did you mean train?\n  -> nmt lists all of them\n"),
        (["zzz"], "nmt: no command 'zzz'\n  -> nmt lists all of them\n"),
        (["import", "tvs"], "nmt import tvs: unknown format 'tvs'; did you mean tsv?\n"),
        (["score"], "nmt score: nothing to score\n"),
    ],
)
def test_a_wrong_command_has_a_next_step(argv, message, capsys):
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith(message)


def test_the_package_is_a_program() -> None:
    command = [sys.executable, "-m", "nmt", "average", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == f"nmt average {nmt.__version__}\n"


@pytest.mark.parametrize("argv", [["--help"], ["import"]])
def test_the_lists_load_no_command(argv: list[str]) -> None:
    found, err, seconds = run("main", *argv)
    assert (found, err) == ("0", "")
    assert seconds < 0.5


def completed(script: str, *line: str) -> list[str]:
    program = 'source /dev/stdin; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_nmt; '
    program += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", program, "bash", *line],
        input=script,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return done.stdout.split()


def test_bash_completes_commands_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "nmt", "tr") == ["train", "translate"]
    assert completed(script, "nmt", "translate", "runs", "--no-rep") == ["--no-repeat-ngram"]
    assert "tsv" in completed(script, "nmt", "import", "t")


def test_zsh_gets_a_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef nmt\n")


def test_a_shortened_help_names_existing_options() -> None:
    for module in ALL.values():
        parser = program(module).parser()
        names = {action.dest for action in parser._actions}
        for action in parser._actions:
            if isinstance(action, _Help):
                assert names.issuperset(action.shown)
    assert completion.whole_parser().prog == "nmt"
