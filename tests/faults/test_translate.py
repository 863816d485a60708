"""Faults of nmt-translate: inputs are kept, n lines in give n lines out, errors are clear."""

from __future__ import annotations

import io
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nmt.cli import train
from nmt.cli.translate import main
from nmt.runtime import device
from tests.toy import toy_corpus, toy_recipe

pytestmark = pytest.mark.slow

LINES = ["3 1 4 1", "", "5 9 2", "\u3000", "6 5 3 5 8 9 7 9"]
Command = Callable[..., tuple[int, bytes, str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Return a run of two updates whose target text has a non-ASCII letter before each digit."""
    folder = tmp_path_factory.mktemp("toy")
    toy_corpus(folder, {"train": 40, "dev": 4, "test": 4})
    for split in ("train", "dev", "test"):
        target = folder / f"{split}.en"
        text = "".join(f"ñ{c}" if c.isdigit() else c for c in target.read_text())
        target.write_text(text, encoding="utf-8")
    recipe = toy_recipe(folder, {"train": {"validate_every": 1, "max_validations": 2}})
    assert train.main([str(recipe)]) == 0
    return folder / "run"


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """Return a copy that a test may damage."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def translate(trained, monkeypatch, capsysbinary) -> Command:
    """Return a function that runs it: (exit code, standard output, standard error)."""

    def command(*argv, stdin: bytes | None = b"", run: Path = trained) -> tuple[int, bytes, str]:
        capsysbinary.readouterr()
        given = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin), encoding="ascii")
        monkeypatch.setattr(sys, "stdin", given)
        code = main([str(run), "--device", "cpu", *map(str, argv)])
        out, err = capsysbinary.readouterr()
        assert b"Traceback" not in err
        assert b"internal error" not in err
        return code, out, err.decode()

    return command


def text_of(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def refused(translate: Command, *argv: str | Path, **options: object) -> str:
    """Return the error message; nothing may be on standard output."""
    code, out, err = translate(*argv, **options)
    assert (code, out) == (2, b"")
    assert err.startswith("nmt-translate: ")
    return err


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- input


def test_there_are_as_many_lines_out_as_in(translate):
    for stdin in (b"", None):  # empty, closed
        assert translate(stdin=stdin) == (0, b"", "")
    code, out, _ = translate(stdin=text_of(LINES))
    lines = out.decode().split("\n")
    assert (code, lines[-1]) == (0, "")
    assert [bool(line) for line in lines[:-1]] == [True, False, True, False, True]
    assert set("".join(lines)) <= set("ñ0123456789 ")
    for variant in (
        text_of(LINES).removesuffix(b"\n"),
        b"\xef\xbb\xbf" + text_of(LINES),
        text_of(LINES).replace(b"\n", b"\r\n"),
        text_of(LINES).replace(b" ", b"\t\x00"),
    ):
        assert translate(stdin=variant)[:2] == (0, out)


@pytest.mark.parametrize(
    ("bad", "of_file", "of_stdin"),
    [
        (b"3 1\n5 9\n2 \xff 6\n", ":3: not UTF-8: invalid start byte at byte 3", ":3: not UTF-8"),
        (
            b"3 1\n" + b"7" * 1_000_000 + b"\n5 9\n",
            ":2: the line has 1,000,000 characters; at most 100,000",
            "line 2: 1,000,000 characters",
        ),
    ],
)
def test_bad_lines_are_named_before_translating(translate, tmp_path, bad, of_file, of_stdin):
    source = tmp_path / "in"
    source.write_bytes(bad)
    err = refused(translate, "--input", source, "--output", tmp_path / "out")
    assert f"{source}{of_file}" in err
    assert names(tmp_path) == ["in"]
    if of_stdin:
        assert of_stdin in refused(translate, stdin=bad)
    for name in (tmp_path / "none", tmp_path):
        assert f"{name}: " in refused(translate, "--input", name)


def test_lines_that_end_with_cr_are_refused(
    translate: Command,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    source = tmp_path / "text"
    source.write_bytes(b"3 1\r2 2\r")
    err = refused(translate, "--input", source)
    assert f"{source}:1: has one line with 1 carriage return inside" in err
    assert f"< {source} > NEW" in err
    with source.open() as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        assert main([str(trained)]) == 2
    assert b"< FILE > NEW" in capsysbinary.readouterr().err


def test_the_file_of_standard_input_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in"
    source.write_bytes(text_of(LINES))
    with source.open() as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        assert main([str(tmp_path), "--output", str(source), "--force"]) == 2
    assert source.read_bytes() == text_of(LINES)


def test_unknown_source_pieces_are_reported(translate: Command) -> None:
    _, _, err = translate(stdin=text_of(["3 1 4"] * 9))
    assert "unknown" not in err
    code, out, err = translate(stdin=text_of([*["3 1 4"] * 9, "", "привет мир", "Ω", "3 Ω"]))
    assert (code, out.count(b"\n")) == (0, 13)
    assert "note: 12.5% of the source subwords are unknown to the model, in 3 of 12 lines" in err
    assert "note: all subwords of lines 11, 12 are unknown to the model; do not rely on" in err
    _, _, err = translate(stdin=text_of([*["3 1 4"] * 99, *["Ω"] * 7]))
    assert "of the source subwords" not in err  # 2.3 %
    assert "lines 100, 101, 102, 103, 104 and 2 more are unknown" in err


def test_the_number_of_workers_does_not_change_the_output(translate: Command) -> None:
    _, alone, _ = translate("--workers", "1", stdin=text_of(LINES * 9))
    assert translate("--workers", "2", stdin=text_of(LINES * 9))[:2] == (0, alone)
    assert "workers: 0 is not" in refused(translate, "--workers", "0", stdin=b"3\n")


# ---------------------------------------------------------------- output


def test_an_existing_output_is_replaced_only_with_force(translate, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(text_of(LINES))
    target.write_text("precious")
    argv = ["--input", source, "--output", target]
    assert "exists already" in refused(translate, *argv)
    assert target.read_text() == "precious"
    _, expected, _ = translate(stdin=text_of(LINES))
    assert translate(*argv, "--force")[:2] == (0, b"")
    assert target.read_bytes() == expected
    assert names(tmp_path) == ["in", "out"]


def test_files_of_a_run_folder_are_never_replaced(translate: Command, run: Path) -> None:
    """Neither those of the model that translates nor those of another one."""
    [weights] = run.glob("checkpoints/u000002/model.safetensors")
    parent = run / "checkpoints" / "parent" / "vocab.txt"  # of init.vocab: parent
    parent.parent.mkdir()
    parent.write_text("a\t1\t1\n")
    files = (run / "config.yaml", run / "test.hyp", run / "checkpoints" / "text" / "vocab.txt")
    for target in (*files, weights, parent):
        before = target.read_bytes()
        for folder in ({}, {"run": run}):
            err = refused(translate, "--output", target, "--force", stdin=b"3\n", **folder)
            assert f"{target}: is an existing file of the model in {run}" in err
        assert target.read_bytes() == before
    own = run / "mine" / "out"  # in a folder that the user makes there
    own.parent.mkdir()
    own.write_text("old")
    assert translate("--output", own, "--force", stdin=b"3\n")[0] == 0
    assert translate("--output", run / "new", stdin=b"3\n")[0] == 0


def test_unwritable_output_is_refused(translate, tmp_path):
    for place, what in (
        (tmp_path / "none" / "out", "the folder does not exist"),
        (tmp_path, "not a regular file"),
        (os.devnull, "not a regular file"),
    ):
        assert what in refused(translate, "--output", place, "--force", stdin=b"3\n")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_note_says_that_an_emulated_precision_is_slow(
    translate: Command, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setattr(device, "_cpu_has_bf16", lambda: False)
    _, exact, message = translate("--scores", "--engine", "torch", stdin=b"3 1 4\n5 9\n")
    assert "emulated" not in message
    code, rounded, message = translate("--scores", "--precision", precision, stdin=b"3 1 4\n5 9\n")
    assert code == 0
    assert message.count("slower than fp32") == 1
    for one, two in zip(exact.splitlines(), rounded.splitlines(), strict=True):
        assert float(two.split(b"\t")[0]) == pytest.approx(float(one.split(b"\t")[0]), rel=0.02)
    assert translate("--precision", "auto", stdin=b"3 1 4\n")[2].count("emulated") == 0


def test_n_best_and_scores(translate: Command) -> None:
    _, plain, _ = translate(stdin=text_of(LINES))
    best = plain.decode().split("\n")[:-1]
    code, out, _ = translate("--n-best", "3", stdin=text_of(LINES))
    rows = [line.split(" ||| ") for line in out.decode().split("\n")[:-1]]
    assert code == 0
    assert [row[0] for row in rows] == [*"000", "1", *"222", "3", *"444"]
    for number, line in enumerate(best):
        of_line = [row for row in rows if row[0] == str(number)]
        scores = [float(row[3]) for row in of_line]
        assert scores == sorted(scores, reverse=True)
        assert of_line[0][1] == line
        assert all(float(row[2]) <= float(row[3]) <= 0 for row in of_line)
    _, out, _ = translate("--scores", stdin=text_of(LINES))
    firsts = {row[0]: row for row in reversed(rows)}
    assert out.decode().split("\n")[:-1] == [
        f"{firsts[str(number)][3]}\t{line}" for number, line in enumerate(best)
    ]


def test_constraints_of_lines_come_from_files(translate: Command, tmp_path: Path) -> None:
    source, prefix, require = (tmp_path / name for name in ("source", "prefix", "require"))
    source.write_bytes(text_of(LINES))
    prefix.write_text("ñ1 ñ2\n\n\n\n☃\n", encoding="utf-8")
    require.write_text("\n\nñ7\tñ8 ñ9 ☃\n\n\n", encoding="utf-8")
    code, out, _ = translate("--input", source, "--prefix", prefix, "--require", require)
    found = out.decode().split("\n")[:-1]
    assert (code, len(found), found[1], found[3]) == (0, 5, "", "")
    assert found[0].startswith("ñ1 ñ2")
    assert "ñ7" in found[2].split()
    assert "ñ8 ñ9 ☃" in found[2]
    assert found[4].startswith("☃")
    prefix.write_text("\n\n")
    err = refused(translate, "--input", source, "--prefix", prefix)
    assert "the file has 2 lines, but the input has 5" in err
    # the number of lines of standard input is known at its end
    code, _, err = translate("--prefix", prefix, stdin=text_of(LINES))
    assert code == 2
    assert "prefix ends before line 3 of the input" in err


def test_a_phrase_instead_of_a_file_of_phrases_is_refused(translate: Command) -> None:
    for phrase in ("ñ1 ñ2", "ñ" * 300):  # longer than a file name may be
        err = refused(translate, "--require", phrase, stdin=b"3 1\n")
        assert f"--require: there is no file {phrase}\n" in err
        assert "pass its path; --help-all explains it" in err


def test_outputs_cut_at_the_length_limit_are_counted(translate: Command) -> None:
    """An untrained model does not know when to end."""
    code, _, err = translate("--beam", "1", stdin=text_of(LINES))
    assert code == 0
    # two lines are blank
    assert re.search(r"length limit \(--max-len-offset\) cut [1-3] of 3 translations\n", err)
    code, _, err = translate("--beam", "1", stdin=text_of(LINES[:1]))
    assert "cut 1 of 1 translation\n" in err


def test_after_resume_cut_outputs_are_counted_among_the_new_ones(
    translate: Command, tmp_path: Path
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(text_of(LINES[:1] * 3))
    argv = ["--beam", "1", "--input", source, "--output", target]
    assert translate(*argv)[0] == 0
    first, *_ = target.read_bytes().splitlines(keepends=True)
    (tmp_path / "out.part").write_bytes(first)
    target.unlink()
    code, _, err = translate(*argv, "--resume")
    assert code == 0
    assert "cut 2 of 2 translations\n" in err


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--n-best", "3", "--beam", "2"], "--n-best (3) must not exceed --beam (2)"),
        (["--beam", "0"], "--beam: 0 is not an integer from 1 to 1000"),
        (["--length-alpha", "nan"], "--length-alpha: nan is not a number"),
        (["--device", "abacus"], '"abacus" is not auto, cpu, cuda or cuda:N'),
    ],
)
def test_invalid_options_are_refused(translate, tmp_path, argv, message):
    assert message in refused(translate, *argv, "--output", tmp_path / "out", stdin=b"3 1\n")
    assert names(tmp_path) == []


def test_extreme_options_work(translate: Command) -> None:
    for argv in (["--beam", "99"], ["--length-alpha", "10"], ["--batch-tokens", "1"]):
        code, out, _ = translate(*argv, stdin=text_of(LINES))
        assert (code, out.count(b"\n")) == (0, len(LINES))


# ---------------------------------------------------------------- the run


def test_a_missing_run_folder_is_refused(translate, trained, tmp_path):
    text = tmp_path / "text"
    text.write_text("3 1\n")
    for run, what in (
        (tmp_path / "none", "no such model or run folder"),
        (tmp_path, "not a model or run folder"),
        (text, f"{text}: this is a file"),
        (trained / "checkpoints" / "u000002", f"did you mean {trained}"),
    ):
        assert what in refused(translate, run=run)


# ---------------------------------------------------------------- processes


def test_a_line_is_answered_while_the_input_stays_open(trained: Path) -> None:
    """In UTF-8, also in an ASCII locale."""
    command = [sys.executable, "-m", "nmt.cli.translate", str(trained), "--device", "cpu"]
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "OMP_NUM_THREADS": "1"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=env, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"3 1\n", b"5 9\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 300)[0]
            assert process.stdout.readline().decode("utf-8").startswith("ñ")
