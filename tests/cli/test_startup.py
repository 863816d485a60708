"""Commands import slow modules only when they use them."""

from __future__ import annotations

import builtins
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.main import commands, program
from tests.decoding.ctranslate2.cases import exported, made

ROOT = Path(__file__).parents[2]
COMMANDS = [
    "average", "calibrate", "completion", "documents", "export", "plot", "prepare", "report",
    "score", "serve", "suggest", "sweep", "synthesize", "train", "translate",
]  # fmt: skip
SECONDS = 2.5  # CPU time; an idle machine needs a fifth of it
PROGRAM = """
import importlib, sys
from nmt.cli.main import commands
name, *sys.argv[1:] = sys.argv[1:]
module = commands()[name] if name in commands() else f"nmt.cli.{name}"
code = 0
try:
    code = importlib.import_module(module).main()
except SystemExit as stop:
    code = stop.code
slow = {'torch', 'torch._dynamo', 'sacremoses', 'sacrebleu'}
print(f"{code} {' '.join(slow & sys.modules.keys())}")
"""


def run(*argv: str | Path, **options: Any) -> tuple[str, str, float]:
    """Return exit code and slow modules that were imported, standard error, and CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, argv)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = sum(getattr(after, t) - getattr(before, t) for t in ("ru_utime", "ru_stime"))
    return done.stdout.splitlines()[-1].strip(), done.stderr, seconds


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_torch(command: str) -> None:
    found, err, seconds = run(command, "--help")
    assert (found.removesuffix(" sacrebleu"), err) == ("0", "")
    assert seconds < SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["train", "RECIPE", "--resume", "--fresh"], "not allowed with"),
        (["train"], "the following arguments are required: RECIPE"),
        (["suggest", "NONE"], "there are no files PREFIX.SRC and PREFIX.TGT"),
        (["train", "RECIPE"], 'unknown key "model.dimm"; did you mean "dim"?'),
        (["train", "RECIPE", "model.norm=layernrom"], "layernrom"),
        (["prepare", "RECIPE"], 'unknown key "model.dimm"'),
        (["translate", "NONE"], "no such model or run folder"),
        (["translate", "RUN"], "not a model or run folder"),
        (["translate", "RECIPE"], "and documents with nmt-documents"),
        (["documents", "NONE", "RECIPE", "-o", "NEW"], "no such model or run folder"),
        (["synthesize", "NONE", "--input", "RECIPE", "-o", "x"], "no such model or run folder"),
        (["translate", "RUN", "--beam", "0"], "beam: 0 is not an integer"),
        (["translate", "RUN", "--force", "--resume"], "not allowed with"),
        (["export", "NONE"], "no such model or run folder"),
        (["report", "NONE"], "no such"),
        (["average", "NONE", "--checkpoints", "u1", "-o", "m"], "no such run folder"),
        (["serve", "NONE"], "no such model or run folder"),
        (["serve", "RUN", "--host", "0.0.0.0"], "--api-key-file"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_reported_without_torch(tmp_path, argv, message):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("src: gl\ntgt: en\nmodel:\n  dimm: 3\n")
    places = {"RECIPE": recipe, "NONE": tmp_path / "none", "RUN": tmp_path, "NEW": tmp_path / "new"}
    found, err, seconds = run(*(places.get(word, word) for word in argv))
    assert found == "2"
    assert message in err
    assert seconds < SECONDS


@pytest.mark.slow
def test_an_exported_folder_is_translated_without_torch(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    exported(made(), tmp_path / "exported")
    source = tmp_path / "in"
    source.write_text("a b\n")
    found, err, seconds = run(
        "translate", tmp_path / "exported", "--input", source, "--output", tmp_path / "out"
    )
    assert found == "0 sacremoses", err  # the tokenizer of its segmenter
    assert (tmp_path / "out").read_text().count("\n") == 1
    assert seconds < 2 * SECONDS


@pytest.mark.slow
def test_no_command_that_reads_a_model_imports_the_compiler_of_torch(short_run, tmp_path):
    """It takes over a second."""
    source, recipe = tmp_path / "in", short_run.parent / "toy.yaml"
    source.write_text("1 2\n")
    for argv in (
        ["translate", short_run, "--engine", "torch", "--input", source],
        ["export", short_run, "--output", tmp_path / "export"],
        ["train", recipe, f"init.from={short_run}", f"out={tmp_path / 'run'}", "--dry-run"],
    ):
        found, err, _ = run(*argv)
        code, *imported = found.split()
        assert code == "0", err
        assert "torch" in imported
        assert "torch._dynamo" not in imported


@pytest.mark.parametrize(
    ("command", "argv", "late"),
    [
        ("train", ["x.yaml"], "nmt.config.load"),
        ("translate", ["run"], "nmt.store.output"),
        ("score", ["run"], "nmt.apps.evaluate.report"),
    ],
)
def test_an_interruption_while_a_command_imports_is_one_line(
    command, argv, late, monkeypatch, capsys
):
    main = program(commands()[command]).main
    real = builtins.__import__

    def interrupted(name: str, *args: Any, **named: Any) -> Any:
        if name == late:
            raise KeyboardInterrupt
        return real(name, *args, **named)

    monkeypatch.setattr(sys, "argv", [f"nmt-{command}"])
    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert main(argv) == 130
    assert capsys.readouterr().err == f"nmt-{command}: interrupted\n"
