"""Faulty input to nmt-score: a clear error, and no output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.score import main
from tests.scoring.runs import make_run, write_lines

COMMAND = [sys.executable, "-m", "nmt.cli.score"]
LINES = ["one two three four five", "six seven eight nine ten"]


def error_of(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    """Run the command, check exit code 2 and empty output, and return the message."""
    assert main([str(arg) for arg in argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


@pytest.fixture
def ref(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "ref", LINES)


def test_line_counts_differ(tmp_path, ref, capsys):
    short = write_lines(tmp_path / "short", LINES[:1])
    run = make_run(tmp_path / "r", LINES, LINES[:1], {}, "u000100")
    for place, argv in (
        (short, ["--hyp", ref, short, "--ref", ref]),
        (short, ["--hyp", ref, "--ref", ref, "--src", short]),
        (run / "test.hyp", [run]),
    ):
        assert f"{place}: 1 line, " in error_of(capsys, *argv)


def test_odd_text_is_noted_and_blank_references_score_0(tmp_path, ref, capsys):
    odd = write_lines(tmp_path / "odd", ["It works , they say .", "So it does ."])
    hyp = write_lines(tmp_path / "hyp", ["It works, they say.", ""])
    assert main(["--hyp", str(hyp), "--ref", str(odd), "--resamples", "0"]) == 0
    captured = capsys.readouterr()
    assert f"note: {hyp}: 1 of 2 hypotheses are empty" in captured.err
    assert f"note: {odd}: looks tokenized" in captured.err
    assert "version:" in captured.out
    blank = write_lines(tmp_path / "blank", [""] * len(LINES))
    assert main(["--hyp", str(ref), "--ref", str(blank), "--metrics", "bleu,tokenized_bleu"]) == 0
    captured = capsys.readouterr()
    assert [row.split("\t")[2] for row in captured.out.splitlines()[1:]] == ["0.0000", "0.0000"]
    assert "every line is empty" in captured.err


def test_unreadable_files(tmp_path, ref, capsys):
    latin = tmp_path / "latin"
    latin.write_bytes("one\ncafé\n".encode("latin-1"))
    for place, hyp in ((tmp_path / "missing", tmp_path / "missing"), (f"{latin}:2", latin)):
        assert f"{place}: " in error_of(capsys, "--hyp", hyp, "--ref", ref)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "nothing to score"),
        (["run", "--hyp", "ref", "--ref", "ref"], "run folders and --hyp cannot be combined"),
        (["--hyp", "ref"], "--hyp requires --ref"),
        (["--hyp", "ref", "ref", "--ref", "ref"], "twice"),
        (["--hyp", "ref", "--ref", "ref", "--split", "dev"], "--split is only for run folders"),
        (["run", "--tokenized"], "--tokenized is only for --hyp"),
        (["run", "--tgt-lang", "en"], "--tgt-lang is only for --hyp"),
        (["missing"], "no such run folder"),
        (["--hyp", "ref", "copy", "--ref", "ref", "--resamples", "0"], "without resamples"),
        (["--hyp", "empty", "--ref", "empty"], "no lines to score"),
        (["run", "--split", "dev"], "no dev hypotheses"),
        (["run"], "no test hypotheses"),
        (["untested"], "no data.test"),
    ],
)
def test_contradictory_or_incomplete_arguments(
    tmp_path: Path,
    ref: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    message: str,
) -> None:
    make_run(tmp_path, LINES, None, {}, "u000100")
    make_run(tmp_path, LINES, LINES, {}, "u000100", "data.test=none", name="untested")
    write_lines(tmp_path / "copy", LINES)
    write_lines(tmp_path / "empty", [])
    monkeypatch.chdir(tmp_path)
    error = error_of(capsys, *argv)
    assert message in error
    assert "\n  -> " in error  # the next step


@pytest.mark.parametrize("option", [["--metrics", "bleu,blue"], ["--resamples", "7"]])
def test_wrong_values(ref: Path, capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--hyp", str(ref), "--ref", str(ref), *option])
    assert left.value.code == 2
    assert option[0] in capsys.readouterr().err


def score(*argv: str | bytes | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *argv], stderr=subprocess.PIPE, check=False, **options)


@pytest.mark.slow
def test_a_closed_output_pipe_ends_the_command(ref):
    reading, writing = os.pipe()
    os.close(reading)
    ran = score("--hyp", ref, "--ref", ref, stdout=writing)
    os.close(writing)
    assert (ran.returncode, b"Error" in ran.stderr) == (141, False)


@pytest.mark.slow
def test_any_name_of_a_file_is_written_in_any_locale(tmp_path, ref):
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for name, env in (("höchst".encode(), {**os.environ, **ascii_only}), (b"h\xff", None)):
        hyp = os.fsencode(tmp_path) + b"/" + name
        os.link(ref, hyp)
        for options in (["--metrics", "bleu"], ["--metrics", "bleu", "--json"]):
            ran = score("--hyp", hyp, "--ref", ref, *options, stdout=subprocess.PIPE, env=env)
            assert ran.returncode == 0, ran.stderr
            assert hyp in ran.stdout or json.loads(ran.stdout)
