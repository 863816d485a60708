"""Worker processes: the same text and errors as in one process, and no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from numba.core.compiler_lock import global_compiler_lock

from nmt.decoding import torch_engine as engine_module
from nmt.decoding import worker_pool as worker_pool_module
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import WorkerPool, all_cores
from nmt.errors import MachineError, UserError
from tests.decoding.untrained import LINES, translator_of, untrained

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked only on Linux"),
    pytest.mark.slow,
]
ROOT = Path(__file__).parents[2]
MANY = [*LINES * 4, "", "pan"]


@pytest.fixture(autouse=True)
def no_process_or_file_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(engine_module, "MIN_PARALLEL_SIZE", 0)
    before = torch.get_num_threads()
    gc.collect()
    open_files = os.listdir("/proc/self/fd")
    yield
    assert torch.get_num_threads() == before
    gc.collect()  # the exception of a test may have held a pool
    assert running() == set()
    # fewer, if a thread of an earlier test has closed its files meanwhile
    assert len(os.listdir("/proc/self/fd")) <= len(open_files)


def running() -> set[int | None]:
    return {child.pid for child in multiprocessing.active_children()}


def with_workers(seed: int = 2, kept: bool = False) -> Translator:
    """Return a translator with two workers, which it keeps if its weights cannot change."""
    translator = untrained(seed)
    translator.engine.workers = 2
    if kept:
        translator.transformer.prepare_for_inference(torch.float32)
    return translator


@contextlib.contextmanager
def in_this_process(translator: Translator) -> Iterator[None]:
    translator.engine.workers = 1
    try:
        yield
        assert running() == set()
    finally:
        translator.engine.workers = 2


def mapped(function: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    """Map with two workers that are kept, and close them."""
    with contextlib.closing(WorkerPool[Any, Any]()) as pool:
        return list(pool.map(function, jobs, 2, keep=True))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_workers_find_the_same_text(precision, monkeypatch):
    batches = []
    original = WorkerPool.map

    def spy(self: Any, function: Any, jobs: list[Any], *args: Any, **named: Any) -> Iterator[Any]:
        batches.append(len(jobs))
        return original(self, function, jobs, *args, **named)

    monkeypatch.setattr(WorkerPool, "map", spy)
    translator = with_workers()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        found = translator.translate(MANY, batch_tokens=40)
        with in_this_process(translator):
            assert found == translator.translate(MANY, batch_tokens=40)
    assert len(batches) == 1
    assert batches[0] > 2


def test_all_constraints_of_a_line_reach_the_workers():
    translator = with_workers()
    constraints: dict[str, Any] = {
        "prefix": ["the"] * len(MANY),
        "require": [["sea"]] * len(MANY),
    }
    found = list(translator.stream(MANY, beam=3, batch_tokens=60, **constraints))
    with in_this_process(translator):
        assert found == list(translator.stream(MANY, beam=3, batch_tokens=60, **constraints))


def test_a_library_call_does_not_fork_unless_asked(monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))

    async def serve() -> list[str]:
        return untrained().translate(MANY)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert len(untrained().translate(MANY)) == len(MANY)
        assert len(asyncio.run(serve())) == len(MANY)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [0, -1, 10**6, 1.5, True, "2"])
def test_a_wrong_number_of_workers_is_an_error(workers):
    one = untrained()
    with pytest.raises(UserError, match=r"workers: .* from 1 to 1024"):
        translator_of(one.transformer, one.codec, one.info.decode, workers)


def test_all_cores_is_what_the_system_and_torch_allow(monkeypatch):
    for cpus, threads, expected in ((2, 8, 2), (8, 2, 2), (1, 1, 1)):
        monkeypatch.setattr(worker_pool_module, "available_cpus", lambda cpus=cpus: cpus)
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert all_cores() == expected
    monkeypatch.setattr(worker_pool_module, "CAN_FORK", False)
    assert all_cores() == 1


def test_workers_are_kept_if_the_weights_cannot_change():
    translator = with_workers(kept=True)
    first = translator.translate(MANY)
    processes = running()
    assert len(processes) == 2
    assert translator.translate(MANY) == first
    assert len(translator.translate(MANY, beam=2, length_alpha=0.0)) == len(first)
    assert running() == processes
    translator.engine.workers = 3
    assert translator.translate(MANY) == first
    assert len(running()) == 3
    assert not running() & processes


def test_an_ensemble_keeps_its_workers_if_no_model_can_change():
    models = [with_workers(seed).transformer for seed in (2, 3)]
    models[0].prepare_for_inference(torch.float32)
    translator = with_workers()
    translator.engine.model = Ensemble(models)
    translator.translate(MANY)
    assert running() == set()
    models[1].prepare_for_inference(torch.float32)
    translator.translate(MANY)
    assert len(running()) == 2


def test_the_next_call_sees_changed_weights():
    translator = with_workers()
    before = translator.translate(MANY)
    assert running() == set()
    with torch.no_grad():
        for parameter in translator.transformer.parameters():
            parameter.mul_(-1.0)
    after = translator.translate(MANY)
    with in_this_process(translator):
        assert before != after == translator.translate(MANY)


def test_workers_that_ended_while_idle_are_started_again():
    translator = with_workers(kept=True)
    expected = translator.translate(MANY)
    before = running()
    for process in before:
        os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while running() & before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert translator.translate(MANY) == expected
    assert not running() & before


def test_workers_follow_autocast_and_the_model_of_the_caller():
    translator = with_workers(kept=True)
    translator.translate(MANY)
    processes = running()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        translator.translate(MANY)
        assert not running() & processes
    processes = running()
    translator.engine.model = with_workers(3).transformer
    found = translator.translate(MANY)
    assert not running() & processes
    assert found == with_workers(3).translate(MANY)


class Failed(Exception):
    """Raised by a function of the caller."""


def test_a_call_works_while_the_exception_of_another_is_handled():
    translator = with_workers(kept=True)
    expected = translator.translate(MANY)

    def fail(lines: int) -> None:
        if lines:
            raise Failed

    try:
        list(translator.stream(MANY, batch_tokens=40, progress=fail))
    except Failed:
        assert translator.translate(MANY) == expected


def test_a_call_within_a_call_works():
    translator = with_workers(kept=True)
    expected = translator.translate(MANY)
    inner = []

    def progress(lines: int) -> None:
        if not inner:
            inner.append(translator.translate(MANY))

    found = [best[0].text for best in translator.stream(MANY, progress=progress)]
    assert [found] == inner == [expected]


def test_workers_of_an_interrupted_call_are_not_used_again():
    pool = WorkerPool[int, str]()
    results = pool.map(lambda n: f"new {n}", range(100), 2, keep=True)
    next(results)
    interrupted = running()
    assert len(interrupted) == 2
    results.close()
    assert running() == set()
    assert list(pool.map(lambda n: f"newer {n}", range(2), 2)) == ["newer 0", "newer 1"]


def test_workers_in_use_are_not_used_by_another_call():
    """The other call computes in its own process."""
    pool = WorkerPool[int, tuple[int, int]]()
    first = pool.map(lambda n: (n, os.getpid()), range(5), 2)
    assert next(first)[1] != os.getpid()
    second = pool.map(lambda n: (n + 1, os.getpid()), range(5), 2)
    assert list(second) == [(n + 1, os.getpid()) for n in range(5)]
    assert [n for n, _ in first] == [1, 2, 3, 4]


def test_a_deep_copy_has_its_own_workers():
    translator = with_workers(kept=True)
    expected = translator.translate(MANY)
    twin = copy.deepcopy(translator)
    assert twin.translate(MANY) == expected
    assert len(running()) == 4


def test_threads_do_not_disturb_each_other():
    translator = with_workers(kept=True)
    lines = [MANY, MANY[::-1], MANY[3:], MANY[:9]]
    found: dict[int, list[str]] = {}

    def translate(number: int) -> None:
        found[number] = translator.translate(lines[number], batch_tokens=40)

    threads = [threading.Thread(target=translate, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: translator.translate(lines[number]) for number in range(4)}


def test_a_fork_of_the_parent_does_not_end_the_workers():
    with contextlib.closing(WorkerPool[int, int]()) as pool:
        assert list(pool.map(lambda n: n + 1, range(2), 2, keep=True)) == [1, 2]
        workers = running()
        child = os.fork()
        if child == 0:
            pool.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert running() == workers
        assert list(pool.map(lambda n: n + 1, range(5), 2, keep=True)) == [1, 2, 3, 4, 5]
        assert running() == workers


ORPHANS = """
import multiprocessing, os, signal
from nmt.decoding.worker_pool import WorkerPool

pools = WorkerPool(), WorkerPool()
for pool in pools:
    list(pool.map(lambda n: n, range(2), 2, keep=True))
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_when_their_parent_is_killed():
    killed = subprocess.run(
        [sys.executable, "-c", ORPHANS], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    processes = [int(word) for word in killed.stdout.split()]
    assert len(processes) == 4
    until = time.monotonic() + 30
    while any(_computes(process) for process in processes):
        assert time.monotonic() < until
        time.sleep(0.05)


def _computes(process: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def test_each_worker_has_one_thread_and_results_are_in_order():
    found = mapped(lambda n: (n, torch.get_num_threads(), os.getpid()), range(200))
    assert [(n, threads) for n, threads, _ in found] == [(n, 1) for n in range(200)]
    assert os.getpid() not in {process for *_, process in found}


def test_large_jobs_and_results_do_not_block_each_other():
    items = [bytes([n]) * 1_000_000 for n in range(20)]
    assert mapped(lambda item: item * 2, items) == [item * 2 for item in items]


def test_an_error_is_raised_in_the_parent_and_ends_the_workers():
    def work(n: int) -> int:
        if n == 3:
            raise UserError("not this one", fix="leave it out")
        return n

    results = WorkerPool[int, int]().map(work, range(10_000), 2, keep=True)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match="not this one") as caught:
        list(results)
    assert caught.value.fix == "leave it out"
    cause = str(caught.value.__cause__)  # with the traceback of the worker
    assert "Traceback" in cause
    assert 'raise UserError("not this one", fix="leave it out")' in cause
    assert running() == set()


def test_workers_do_not_inherit_the_lock_of_a_thread_that_compiles():
    begun, stop = threading.Event(), threading.Event()

    def compiling() -> None:
        with global_compiler_lock:
            begun.set()
            stop.wait(0.5)

    thread = threading.Thread(target=compiling)
    thread.start()
    begun.wait()
    assert mapped(lambda n: global_compiler_lock._lock.acquire(timeout=5), range(2)) == [True] * 2
    thread.join()


def test_closing_the_results_leaves_no_process():
    results = WorkerPool[int, int]().map(lambda n: n, range(10_000), 2, keep=True)
    assert next(results) == 0
    results.close()
    assert running() == set()


def test_deleting_the_pool_leaves_no_process():
    pool = WorkerPool[int, int]()
    assert list(pool.map(lambda n: n, range(3), 2, keep=True)) == [0, 1, 2]
    assert len(running()) == 2
    del pool
    gc.collect()
    assert running() == set()


def test_a_killed_worker_is_an_error():
    def work(n: int) -> int:
        if n == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    with pytest.raises(MachineError, match="exit code -9") as caught:
        mapped(work, range(100))
    assert "--workers" in str(caught.value.fix)


def test_workers_ignore_ctrl_c():
    """Ctrl-C reaches every process of the group; the parent decides what it ends."""

    def work(n: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return n

    assert mapped(work, range(4)) == [0, 1, 2, 3]


def test_workers_end_when_the_caller_stops():
    """As after a timeout: the caller does not wait for the batch that a worker computes."""
    pool: WorkerPool[float, None] = WorkerPool()
    started = time.monotonic()

    def stop() -> None:
        if time.monotonic() - started > 0.5:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        list(pool.map(time.sleep, [60.0, 60.0], 2, keep=True, stop=stop))
    assert time.monotonic() - started < 30
    assert not pool._workers
