"""The process that reads documents: it is ended when it takes too long, too much, or fails."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tests.apps.serve.conftest  # noqa: F401, skips without the extra
from nmt.apps.documents.lines import Link, Translated
from nmt.apps.serve import worker as module
from nmt.apps.serve.limits import Refused
from nmt.apps.serve.worker import Worker
from tests.apps.serve.test_long_runs import bomb

LANGS = ("gl", "en")
TEXT = b"o can\n\na gata\n"
SOON = 30.0  # seconds
READER = "import nmt.apps.serve.worker as w; w.count_segments = lambda *a: {}; w.main()"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have other limits"),
]


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.close()


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that sets what the process computes instead of the number of segments."""

    def use(expression: str) -> None:
        start = module.START.partition(";")[0] + "; sys.path[:] = {!r}; "
        code = READER.format(expression.replace("{", "{{").replace("}", "}}"))
        monkeypatch.setattr(module, "START", start + code)

    return use


def count(worker: Worker, seconds: float = SOON) -> int:
    return worker.count(TEXT, "a.txt", LANGS, time.monotonic() + seconds)


def refusal(worker: Worker, seconds: float = SOON) -> tuple[int, str]:
    with pytest.raises(Refused) as found:
        count(worker, seconds)
    return found.value.status, found.value.code


def test_documents_are_read_one_after_the_other_in_one_process(worker: Worker) -> None:
    held = b"x" * 300_000_000  # this process has more memory than one that reads may keep
    assert count(worker) == 2
    del held
    first = worker._process
    links = [Link(0, 5, 0, 1)]

    def translate(lines: list[str], require: object, align: bool) -> list[Translated]:
        return [Translated(line.upper(), links, "short \ud800") for line in lines]

    data, remarks = worker.translate(TEXT, "a.txt", LANGS, time.monotonic() + SOON, translate, 100)
    assert data == TEXT.upper()
    assert [(one.place, one.problem) for one in remarks] == [
        ("line 1", "short \ud800"), ("line 3", "short \ud800")
    ]  # fmt: skip
    assert worker._process is first


@pytest.mark.parametrize(
    ("expression", "seconds", "expected"),
    [
        ("max(iter(int, 1))", 1.0, (504, "timeout")),
        ("__import__('re').match('(a*)*b', 'a' * 40)", 1.0, (504, "timeout")),
        ("len(bytearray(1 << 40))", SOON, (422, "bad_document")),
        ("len([bytearray(1 << 20) for _ in range(1 << 20)])", SOON, (422, "bad_document")),
        ("__import__('os')._exit(3)", SOON, (422, "bad_document")),
        ("__import__('os').kill(__import__('os').getpid(), 11)", SOON, (422, "bad_document")),
        ("1 // 0", SOON, (422, "bad_document")),
        ("(f := lambda: f())()", SOON, (422, "bad_document")),
    ],
)
def test_a_bad_document_is_refused_and_the_next_one_is_read(
    worker, reading, monkeypatch, expression, seconds, expected
):
    started = time.monotonic()
    reading(expression)
    assert refusal(worker, seconds) == expected
    assert time.monotonic() - started < SOON
    reading("7")
    if worker._process is not None:
        worker._end(worker._process)
    assert count(worker) == 7


def test_what_a_reader_prints_is_not_an_answer(worker, reading):
    reading("print('{}') or 3")
    assert count(worker) == 3


def test_a_process_that_had_much_memory_ends(worker, reading):
    reading("len(b'x' * 250_000_000)")
    assert count(worker) == 250_000_000
    assert worker._process is None


@pytest.mark.parametrize("size", [200_000_000, 300_000_000])
def test_a_small_archive_of_a_large_document_is_refused(worker: Worker, size: int) -> None:
    data = bomb(size)
    assert len(data) < size / 500
    with pytest.raises(Refused) as found:
        worker.count(data, "a.docx", LANGS, time.monotonic() + SOON)
    assert found.value.code in ("bad_document", "timeout")
    if worker._process is not None:  # it had little memory
        status = Path(f"/proc/{worker._process.pid}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) <= module.KEPT_MEMORY


def test_a_large_translation_and_an_error_of_the_model_end_the_process(worker: Worker) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    until = time.monotonic() + SOON
    with pytest.raises(ZeroDivisionError):
        worker.translate(TEXT, "a.txt", LANGS, until, fail, 100)
    assert worker._process is None
    with pytest.raises(Refused):
        worker.translate(TEXT, "a.txt", LANGS, until, lambda *_: [Translated("x" * 99)] * 2, 100)
    assert worker._process is None


def test_close_ends_what_is_read(worker: Worker, reading: Callable[[str], None]) -> None:
    reading("max(iter(int, 1))")
    threading.Timer(1.0, worker.close).start()
    assert refusal(worker) == (503, "stopping")
    assert refusal(worker) == (503, "stopping")


def test_the_process_ends_with_the_server() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", module.START.format(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.communicate(timeout=SOON)
    assert process.returncode == 0


def test_the_process_imports_no_torch() -> None:
    code = (
        "import sys, nmt.apps.serve.worker; print({'torch', 'numpy', 'fastapi'} & {*sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
