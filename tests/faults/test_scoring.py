"""Faulty input to nmt-score: a clear error, and no output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.apps.evaluate.command import main
from tests.scoring.runs import make_run, write_lines

COMMAND = [sys.executable, "-m", "nmt.apps.evaluate.command"]
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


def test_line_counts_differ(tmp_path: Path, ref: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = write_lines(tmp_path / "short", LINES[:1])
    error = error_of(capsys, "--hyp", ref, short, "--ref", ref)
    assert f"{short}: 1 line, but the reference has 2" in error
    error = error_of(capsys, "--hyp", ref, "--ref", ref, "--src", short)
    assert f"{short}: 1 line, " in error
    run = make_run(tmp_path / "r", LINES, LINES[:1], {}, "u000100")
    assert f"{run / 'test.hyp'}: 1 line, " in error_of(capsys, run)


def test_notes_on_a_tokenized_reference_and_an_empty_hypothesis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ref = write_lines(tmp_path / "ref", ["It works , they say .", "So it does ."])
    hyp = write_lines(tmp_path / "hyp", ["It works, they say.", ""])
    assert main(["--hyp", str(hyp), "--ref", str(ref), "--resamples", "0"]) == 0
    captured = capsys.readouterr()
    assert f"note: {hyp}: 1 of 2 hypotheses are empty" in captured.err
    assert f"note: {ref}: looks tokenized" in captured.err
    assert "version:" in captured.out


def test_empty_references_score_zero(
    tmp_path: Path, ref: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blank = write_lines(tmp_path / "blank", [""] * len(LINES))
    assert main(["--hyp", str(ref), "--ref", str(blank), "--metrics", "bleu,tokenized_bleu"]) == 0
    captured = capsys.readouterr()
    assert [row.split("\t")[2] for row in captured.out.splitlines()[1:]] == ["0.0000", "0.0000"]
    assert "every line is empty" in captured.err


def test_unreadable_files(tmp_path: Path, ref: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    assert str(missing) in error_of(capsys, "--hyp", missing, "--ref", ref)
    latin = tmp_path / "latin"
    latin.write_bytes("one\ncafé\n".encode("latin-1"))
    assert f"{latin}:2: not UTF-8" in error_of(capsys, "--hyp", latin, "--ref", ref)


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


@pytest.mark.slow
def test_a_closed_output_pipe_ends_the_command(ref: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "--hyp", str(ref), "--ref", str(ref)]
    ran = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, encoding="utf-8", check=False
    )
    os.close(writing)
    assert ran.returncode == 141
    assert "Error" not in ran.stderr


@pytest.mark.slow
def test_ascii_locale(tmp_path: Path, ref: Path) -> None:
    hyp = write_lines(tmp_path / "höchst", LINES)
    command = [*COMMAND, "--hyp", str(hyp), "--ref", str(ref)]
    environment = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(
        [*command, "--metrics", "bleu"], env=environment, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split(b"\n")[1].startswith(str(hyp).encode())


@pytest.mark.slow
def test_a_file_name_that_is_not_utf8(tmp_path: Path, ref: Path) -> None:
    hyp = os.fsencode(tmp_path) + b"/h\xff"
    os.link(ref, hyp)
    command = [*COMMAND, "--hyp", hyp, "--ref", str(ref)]
    for options in (["--metrics", "bleu"], ["--metrics", "bleu", "--json"]):
        ran = subprocess.run([*command, *options], capture_output=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert hyp in ran.stdout
