"""nmt-translate with files, signals and terminals; tests/faults has its error messages."""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import input as cli_input
from nmt.cli import search_options, translate
from nmt.cli.input import StreamLines, read_input, read_parallel
from nmt.cli.search_options import CONSTRAINT_FILES, as_flag
from nmt.cli.translate import parser
from nmt.decoding.batching import read_chunks
from nmt.decoding.options import SearchOptions
from nmt.errors import UserError
from nmt.store.output import locked_output
from tests.cli.imitation import Capitals
from tests.decoding.ctranslate2.cases import exported, made

# the command without torch, which takes seconds to import
PROGRAM = """
import sys
from nmt.cli import search_options, translate
from nmt.store.output import locked_output
from tests.cli.imitation import Capitals
search_options._load = lambda args: Capitals()
assert "torch" not in sys.modules
sys.exit(translate.main(sys.argv[1:]))
"""
ROOT = Path(__file__).parents[2]


def start(*argv: str | Path, **streams: Any) -> subprocess.Popen[bytes]:
    """Start the command; ``streams``: stdin, stdout and stderr that are not pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run", *map(str, argv)],
        **{**dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE), **streams},
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)},
    )


# ---------------------------------------------------------------- terminals


@pytest.fixture
def terminal() -> Iterator[tuple[int, Callable[[], str]]]:
    """Return a terminal of 80 columns for a command, and a function that reads what it shows."""
    test_end, child_end = pty.openpty()
    fcntl.ioctl(child_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.set_blocking(test_end, False)

    def written() -> str:
        try:
            return os.read(test_end, 1 << 16).decode()
        except BlockingIOError:
            return ""

    yield child_end, written
    os.close(child_end)
    os.close(test_end)


@pytest.mark.slow
def test_the_progress_bar_shows_the_time_left_on_a_terminal_only(tmp_path, terminal):
    """The number of lines is known for a file, also as standard input, but not for a pipe."""
    child_end, written = terminal
    source = tmp_path / "in"
    source.write_text("a\n" * 7)
    with start("--input", source, "--output", tmp_path / "quiet") as process:
        assert process.communicate(timeout=60) == (b"", b"")
    with start("--input", source, "--output", tmp_path / "out", stderr=child_end) as process:
        assert process.wait(60) == 0
    bar = written()
    assert "7/7" in bar
    assert "lines/s" in bar
    assert "<" in bar  # elapsed<left
    assert (tmp_path / "out").read_bytes() == b"A\n" * 7
    with source.open("rb") as stdin, start(stdin=stdin, stderr=child_end) as process:
        assert process.communicate(timeout=60) == (b"A\n" * 7, None)
    assert "7/7" in written()
    with start(stderr=child_end) as process:
        assert process.communicate(b"a\n" * 7, timeout=60) == (b"A\n" * 7, None)
    bar = written()
    assert "7 lines" in bar
    assert "lines/s" in bar
    assert "/7" not in bar


@pytest.mark.slow
def test_there_is_no_progress_bar_where_a_person_types_or_reads(terminal):
    child_end, written = terminal
    with start(stdout=child_end, stderr=child_end) as process:
        process.communicate(b"a\n" * 7, timeout=60)
    assert written().split() == ["A"] * 7
    with start(stdin=child_end, stderr=child_end) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + 60
        while "Ctrl-D" not in written():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b""
        assert process.wait(60) == 143
    assert "lines/s" not in written()


# ---------------------------------------------------------------- input


def test_compressed_input_is_read_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress("\ufeffa ñ\r\n\nb".encode()))
    lines, total, _ = read_input(str(path))
    assert (list(lines), total) == (["a ñ", "", "b"], 3)


def test_an_error_in_the_last_line_is_found_before_translating(tmp_path: Path) -> None:
    plain, cut = tmp_path / "in", tmp_path / "in.gz"
    plain.write_bytes(b"a\n" * 9 + b"\xff\n")
    cut.write_bytes(gzip.compress(b"a\n" * 999)[:-9])
    with pytest.raises(UserError, match="in:10: not UTF-8"):
        read_input(str(plain))
    with pytest.raises(UserError, match="truncated"):
        read_input(str(cut))
    with pytest.raises(UserError, match="Not a directory"):
        read_input(str(plain / "below"))


def test_standard_input_that_is_a_file_is_checked_and_counted(tmp_path, monkeypatch):
    """From its current position: a shell may have read its first lines."""
    path = tmp_path / "in"
    path.write_bytes("title\n1\nñ 2\n".encode())
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert file.buffer.readline() == b"title\n"
        lines, total, _ = read_input(None)
        assert (list(lines), total) == (["1", "ñ 2"], 2)
    path.write_bytes(b"1\n\xff\n")
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        with pytest.raises(UserError, match="standard input:2: not UTF-8"):
            read_input(None)


def test_a_parallel_file_may_be_a_pipe(tmp_path: Path) -> None:
    """Such as a shell's <(command), which can be read only once."""
    read, write = os.pipe()
    os.write(write, b"x\n\n")
    os.close(write)
    assert list(read_parallel(f"/dev/fd/{read}", 2)) == ["x", ""]
    os.close(read)
    (tmp_path / "short").write_text("x\n")
    with pytest.raises(UserError, match="the file has 1 line, but the input has 2"):
        read_parallel(str(tmp_path / "short"), 2)


# ---------------------------------------------------------------- pauses


def test_ready_tells_whether_a_line_can_be_read_without_waiting() -> None:
    read, write = os.pipe()
    with open(read, "rb") as file:
        lines = StreamLines(file, "x")
        assert not lines.ready()
        os.write(write, "ñ\r\n\nb".encode())
        assert lines.ready()
        assert next(lines) == "ñ"
        assert lines.ready()
        assert next(lines) == ""
        assert not lines.ready()  # half a line
        os.write(write, b"c\nd")
        assert lines.ready()
        assert next(lines) == "bc"
        os.close(write)
        assert lines.ready()  # a last line without its end
        assert next(lines) == "d"
        assert lines.ready()
        assert list(lines) == []


@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_a_pipe_gives_the_same_lines_as_a_file(tmp_path, monkeypatch, size):
    monkeypatch.setattr(cli_input, "CHUNK", size)
    for data in (b"", b"a", b"a\n", b"\n\n", "\ufeffñ\r\n\r\n \t\x00\n\u2028".encode()):
        (tmp_path / "x").write_bytes(data)
        expected = list(read_input(str(tmp_path / "x")).lines)
        with open(tmp_path / "x", "rb") as file:
            assert list(StreamLines(file, "x")) == expected


def test_a_chunk_ends_when_the_input_pauses() -> None:
    answers = iter([True, False, True, True, False])
    found = read_chunks(iter("abcde"), 3, len, lambda: next(answers))
    assert [chunk for chunk, _ in found] == [["a", "b"], ["c", "d", "e"]]


def test_a_line_that_is_too_long_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("nmt.cli.input.LONGEST_LINE", 1000)
    (tmp_path / "x").write_bytes(b"a" * 10_000_000)
    with open(tmp_path / "x", "rb") as file:
        lines = StreamLines(file, "x")
        assert lines.ready()
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) < 1_000_000
        with pytest.raises(UserError, match="x:1: the line has over 1,000 bytes"):
            next(lines)


def test_fast_lines_fill_their_chunks() -> None:
    read, write = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(write, b"x\n" * 20_000), os.close(write)))
    writer.start()
    with open(read, "rb") as file:
        lines = StreamLines(file, "x")
        sizes = [len(chunk) for chunk, _ in read_chunks(lines, 2048, len, lines.ready)]
    writer.join()
    assert sizes == [2048] * 9 + [20_000 - 9 * 2048]


# ---------------------------------------------------------------- flags


def test_every_search_option_is_a_flag_with_an_example() -> None:
    """In docs/search-options.md, as a flag and as a Python argument."""
    page = (ROOT / "docs/search-options.md").read_text(encoding="utf-8")
    flags = {option for action in parser()._actions for option in action.option_strings}
    for name in (*SearchOptions.model_fields, *CONSTRAINT_FILES):
        flag = as_flag(name)
        assert flag in flags
        assert f"{flag} " in page or f"{flag}`" in page, flag
        assert f"{name}=" in page or name == "n_best", name


def test_a_note_names_the_compute_type_of_a_quantized_export(tmp_path, capsys):
    pytest.importorskip("ctranslate2")
    (tmp_path / "in").write_text("a b\n")
    for quantization, note in ((None, ""), ("int8", "note: the weights are stored in int8; ")):
        folder = tmp_path / f"export-{quantization}"
        exported(made(), folder, quantization)
        argv = [str(folder), "--device", "cpu", "--input", str(tmp_path / "in")]
        assert translate.main(argv) == 0
        err = capsys.readouterr().err
        assert err.startswith(note)
        assert ("CTranslate2 computes in int8" in err) == bool(note)


# ---------------------------------------------------------------- resuming


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs nmt-translate here: (exit code, standard error)."""
    monkeypatch.setattr(search_options, "_load", lambda args: Capitals())

    def run(*argv: str | Path, stdin: str | None = None) -> tuple[int, str]:
        given = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin.encode()))
        monkeypatch.setattr(sys, "stdin", given)
        code = translate.main(["run", *map(str, argv)])
        return code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("n_best", [1, 3])
def test_an_unfinished_translation_can_be_resumed(command, tmp_path, n_best):
    """The output equals that of an uninterrupted command, wherever a kill cut the file."""
    source, target, part = tmp_path / "in", tmp_path / "out", tmp_path / "out.part"
    source.write_text("".join(f"line {n}\n" for n in range(9)))
    argv = ["--input", source, "--n-best", str(n_best), "--output"]
    assert command(*argv, tmp_path / "complete") == (0, "")
    complete = (tmp_path / "complete").read_bytes()

    source.write_text("".join("fail\n" if n == 5 else f"line {n}\n" for n in range(9)))
    assert command(*argv, target)[0] == 130
    source.write_text("".join(f"line {n}\n" for n in range(9)))
    # what may have reached the disk; a complete file may not have got its name
    for cut in (7, len(complete) * 4 // 9 + 3, len(complete)):
        part.write_bytes(complete[:cut])
        assert command(*argv, target, "--resume") == (0, "")
        assert target.read_bytes() == complete
        assert sorted(p.name for p in tmp_path.iterdir()) == ["complete", "in", "out"]
        target.unlink()


def test_lines_of_another_command_are_not_continued(command: Any, tmp_path: Path) -> None:
    source, target, part = tmp_path / "in", tmp_path / "out", tmp_path / "out.part"

    def refused(*argv: str) -> str:
        code, err = command("--input", source, "--output", target, *argv)
        assert code == 2
        return err

    source.write_text("a\nfail\n")
    code, err = command("--input", source, "--output", target)
    assert (code, "the same command with --resume continues" in err) == (130, True)
    before = part.read_bytes()
    assert before == b"A\n"
    assert "contains the lines of an interrupted translation" in refused()
    for flags in (["--n-best", "2"], ["--n-best", "2", "--json"]):
        assert "its lines are not those of a command with these" in refused("--resume", *flags)
    source.write_text("")
    assert f"{part}: cannot be resumed, because it has 1 line, and the" in refused("--resume")
    source.write_text("a\nb\n")
    assert part.read_bytes() == before
    code, err = command("--output", target, "--resume")
    assert (code, "--resume requires a regular --input file and --output" in err) == (2, True)
    assert command("--input", source, "--output", target, "--force") == (0, "")
    assert target.read_bytes() == b"A\nB\n"


# ---------------------------------------------------------------- existing files


@pytest.mark.parametrize("flags", [["--n-best", "2"], ["--token-scores"]])
def test_scores_with_output_that_has_them_is_refused(flags: list[str], command: Any) -> None:
    code, err = command("--scores", *flags)
    assert (code, f"{flags[0]} cannot be combined with --scores: " in err) == (2, True)


def test_finished_lines_are_deleted_only_with_force(command: Any, tmp_path: Path) -> None:
    target, part = tmp_path / "out", tmp_path / "out.part"
    code, err = command("--output", target, stdin="a\nfail\n")
    assert code == 130
    assert "the same command with --force starts over" in err
    code, err = command("--output", target, stdin="b\n")
    assert code == 2
    assert f"{part}: contains the lines of an interrupted translation" in err
    assert part.read_text() == "A\n"
    assert command("--output", target, "--force", stdin="b\n")[0] == 0
    assert target.read_text() == "B\n"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_link_in_place_of_the_partial_output_is_refused(command: Any, tmp_path: Path) -> None:
    precious, part = tmp_path / "precious", tmp_path / "out.part"
    precious.write_text("x")
    part.symlink_to(precious)
    code, err = command("--output", tmp_path / "out", "--force", stdin="a\n")
    assert (code, precious.read_text()) == (2, "x")
    assert f"{part}: is not a regular file" in err


@pytest.mark.parametrize("flag", ["--input", "--score-target", "--prefix", "--glossary"])
@pytest.mark.parametrize("name", ["same", "symlink", "hard link", "part"])
def test_no_input_is_ever_overwritten(command: Any, tmp_path: Path, flag: str, name: str) -> None:
    file, target = tmp_path / "f", tmp_path / name
    if name == "same":
        target = file
    elif name == "part":
        file = tmp_path / "part.part"
    file.write_text("a\tb\n")
    if name == "symlink":
        target.symlink_to(file)
    elif name == "hard link":
        target.hardlink_to(file)
    code, err = command(flag, file, "--output", target, "--force", stdin="a\n")
    assert code == 2
    assert ": is also an input, which would be overwritten" in err
    assert file.read_text() == "a\tb\n"


def test_two_commands_cannot_write_the_same_output(command: Any, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with locked_output(str(target), [], False, False):
        code, err = command("--output", target, "--force", stdin="a\n")
        assert (code, err.startswith(f"nmt-translate: {target}: ")) == (4, True)
    assert not list(tmp_path.iterdir())
    assert command("--output", target, stdin="a\n") == (0, "")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("from_pipe", [False, True])
def test_a_file_that_appears_during_the_translation_is_kept(command, tmp_path, from_pipe):
    source, target, part = tmp_path / "in", tmp_path / "out", tmp_path / "out.part"
    text = f"a\ncreate {target}\n"
    source.write_text(text)
    argv = ["--output", target, *([] if from_pipe else ["--input", source])]
    code, err = command(*argv, stdin=text)
    step = f"rename {part} to {target}" if from_pipe else "run the same command with --resume"
    assert (code, f"nmt-translate: {target}: " in err) == (2, True)
    assert err.endswith(f", then {step}\n")
    assert (target.read_text(), part.read_text()) == ("precious", text.upper())
    if from_pipe:
        assert command(*argv, "--force", stdin=text)[0] == 0
    else:
        target.unlink()
        assert command(*argv, "--resume")[0] == 0
    assert target.read_text() == text.upper()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]


def test_the_lines_of_an_interrupted_force_are_not_lost(command: Any, tmp_path: Path) -> None:
    source, target, part = tmp_path / "in", tmp_path / "out", tmp_path / "out.part"
    source.write_text("a\nfail\n")
    target.write_text("old")
    argv = ["--input", source, "--output", target]
    _, err = command(*argv, "--force")
    assert f"{part}; the same command with --resume instead of --force continues" in err
    code, err = command(*argv, "--resume")
    assert (code, part.read_text()) == (2, "A\n")
    assert err.endswith("-> rename or delete it, then run the same command with --resume\n")
    assert "--force" not in err


def test_files_of_a_killed_command_without_a_line_do_not_block(command, tmp_path):
    (tmp_path / ".out.nmt-lock").touch()
    (tmp_path / "out.part").touch()
    assert command("--output", tmp_path / "out", stdin="a\n") == (0, "")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
