"""Values of a stranger's files, and a machine without memory, disk or locks: errors for people."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.apps.plot.curves import RunMetrics
from nmt.cli import common, export, plot, report
from nmt.cli.parsers import command_parser
from nmt.config.load import load_recipe
from nmt.errors import UserError
from nmt.runtime import files
from nmt.store.checkpoint import load_checkpoint
from nmt.store.results import read_metrics, read_result, read_summary
from tests.run_cases import trained
from tests.toy import toy_corpus, toy_recipe

ODD = [None, True, "text", "9" * 500, [1], {"a": 1}, 10**400, -1, "1e999", [[]], ""]
KEYS = ("kind", "update", "bleu", "ppl", "seconds", "loss")


@pytest.mark.parametrize("key", KEYS)
def test_odd_types_in_the_metrics_are_left_out(key, tmp_path: Path):
    run = trained(tmp_path / "run", 1)
    record = {"kind": "dev", "update": 1, "bleu": 1.0, "ppl": 2.0, "seconds": 3.0, "loss": 1.0}
    lines = [json.dumps({**record, key: value}) for value in ODD]
    lines += [json.dumps(record).replace("1.0", "1e999"), json.dumps({key: 1}), "[]", "1", '"a"']
    run.metrics_file.write_text("".join(f"{line}\n" for line in [json.dumps(record), *lines]))
    list(read_metrics(run))
    assert read_result(run.path).updates >= 1
    curve = RunMetrics(run.path).curve("dev", "bleu")
    assert len(curve.updates) == len(curve.values)


SUMMARY = ("status", "reason", "best", "dev", "updates", "hours", "test", "test_sets", "versions",
           "files")  # fmt: skip


@pytest.mark.parametrize("key", SUMMARY)
def test_odd_types_in_the_summary_count_as_damage(key, tmp_path: Path):
    run = trained(tmp_path / "run", 1)
    for value in (*ODD, [{"name": 1}], [{"value": 1}], [{"name": "b", "value": "1"}]):
        run.summary_file.write_text(json.dumps({"status": "finished", key: value}))
        summary = read_summary(run)
        assert summary == {} or isinstance(summary["status"], str)
        read_result(run.path)


def test_a_report_of_odd_values_is_written_or_refused(tmp_path: Path, capsys):
    run = trained(tmp_path / "run", 1)
    run.metrics_file.write_text('{"kind": "dev", "update": 1, "bleu": [1]}\n{"update": 1e400}\n')
    run.summary_file.write_text('{"status": 1, "test": [1]}')
    assert report.main([str(run.path), "-o", str(tmp_path / "page.html")]) in (0, 2)
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize("out", ["a\0b", "x" * 5000, "/".join(["x" * 200] * 30), "y" * 256])
def test_an_impossible_run_folder_is_refused(out, tmp_path: Path):
    toy_corpus(tmp_path)
    recipe = toy_recipe(tmp_path)
    with pytest.raises(UserError, match="a path") as refused:
        load_recipe(recipe, [f"out={out}"])
    assert len(str(refused.value)) < 500
    assert "\0" not in str(refused.value)


def test_control_characters_in_messages_are_escaped(tmp_path: Path):
    run = trained(tmp_path / "run", 1)
    path = run.checkpoints()[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest |= {"format": 99, "nmt": "9.9\x1b[31m\x07\u202e"}
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError) as refused:
        load_checkpoint(run)
    text = str(refused.value)
    assert r"9.9\x1b[31m\x07\u202e" in text
    assert all(char.isprintable() or char == "\n" for char in text)


def run_body(error: BaseException, capsys) -> tuple[int, str]:
    def body(args: object) -> None:
        raise error

    code = common.run_command(body, lambda: command_parser("nmt-test"), [])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        ImportError("libtorch.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_too_little_memory_is_an_error_of_the_environment(error, capsys):
    code, message = run_body(error, capsys)
    assert code == 4
    assert "memory" in message
    assert "ulimit -v" in message
    assert "internal error" not in message


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later",
        "CUDA error: uncorrectable ECC error encountered",
        "NCCL error in: ProcessGroupNCCL.cpp:77, unhandled system error",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ],
)
def test_a_lost_gpu_is_an_error_with_the_resume_option(text, capsys):
    code, message = run_body(RuntimeError(text), capsys)
    assert (code, len(message.splitlines())) == (3, 2)
    assert "--resume" in message
    assert "internal error" not in message


def test_a_failed_assertion_on_a_gpu_is_a_fault_of_nmt(capsys):
    text = "CUDA error: device-side assert triggered"
    assert "internal error" in run_body(RuntimeError(text), capsys)[1]


def test_ctrl_c_that_a_library_turned_into_its_own_error_is_ctrl_c(capsys):
    def body(args: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):  # as pydantic does while it builds a class
            signal.raise_signal(signal.SIGINT)
        raise ValueError("no validator")

    code = common.run_command(body, lambda: command_parser("nmt-test"), [])
    assert (code, capsys.readouterr().err) == (130, "nmt-test: interrupted\n")


@pytest.mark.parametrize("program", ["nmt-score", "nmt-train", "nmt"])
def test_ctrl_c_during_the_first_imports_prints_no_traceback(program, tmp_path: Path):
    """The program imports a command as the console script does, and Ctrl-C comes meanwhile."""
    script = tmp_path / program
    script.write_text(
        "import sys, types\n"
        "import nmt.cli\n"
        "print('started', flush=True)\n"
        "import time; time.sleep(60)  # as a slow import\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, "interrupted\n")


def test_importing_the_commands_as_a_library_leaves_ctrl_c_alone():
    code = "import signal, nmt.cli; print(signal.getsignal(signal.SIGINT).__name__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "default_int_handler\n"


@pytest.fixture
def full_disk(monkeypatch):
    def write(path: Path, data: bytes) -> None:
        path.write_bytes(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def start() -> None:
        monkeypatch.setattr(files, "write_synced", write)

    return start


def test_a_full_disk_while_a_model_is_exported(full_disk, short_run: Path, tmp_path: Path, capsys):
    pytest.importorskip("ctranslate2")
    full_disk()
    output = tmp_path / "model"
    assert export.main([str(short_run), "--output", str(output)]) == 4
    error = capsys.readouterr().err
    assert f"{output}: the disk (or your quota) is full: " in error
    assert "needed" in error
    assert "run the same command again" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_leaves_no_part_of_a_figure(full_disk, short_run: Path, tmp_path: Path, capsys):
    full_disk()
    assert plot.main(["curves", str(short_run), "-o", str(tmp_path / "a.png")]) == 4
    assert "a.png: the disk (or your quota) is full: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
