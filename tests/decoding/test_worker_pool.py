"""Batches in several processes: the same text, errors as they are, and nothing left behind."""

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

from nmt.decoding import translator as translator_module
from nmt.decoding import worker_pool as cores_module
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.translator import Translator
from nmt.decoding.worker_pool import WorkerPool, all_cores
from nmt.errors import MachineError, UserError
from tests.decoding.untrained import LINES, untrained

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are not forked")
ROOT = Path(__file__).parents[2]
MANY = [*LINES * 4, "", "pan"]


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(translator_module, "MIN_PARALLEL_SIZE", 0)
    before = torch.get_num_threads()
    gc.collect()
    open_files = os.listdir("/proc/self/fd")
    yield
    assert torch.get_num_threads() == before
    gc.collect()  # a test's exception may have held what it had
    assert running() == set()
    assert len(os.listdir("/proc/self/fd")) == len(open_files)


def running() -> set[int | None]:
    return {child.pid for child in multiprocessing.active_children()}


@contextlib.contextmanager
def two_doing(work: Callable[[Any], Any]) -> Iterator[WorkerPool[Any, Any]]:
    with contextlib.closing(WorkerPool(work, 2)) as cores:
        yield cores


def forking(seed: int = 2) -> Translator:
    translator = untrained(seed)
    translator.workers = 2
    return translator


@contextlib.contextmanager
def in_this_process(translator: Translator) -> Iterator[None]:
    translator.workers = 1
    try:
        yield
        assert running() == set()
    finally:
        translator.workers = 2


def mapped(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    with two_doing(work) as cores:
        return list(cores.map(items))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_processes_change_no_text(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    original = WorkerPool.map

    def watched(self: Any, items: list[Any]) -> Iterator[Any]:
        searched.append(len(items))
        return original(self, items)

    monkeypatch.setattr(WorkerPool, "map", watched)
    translator = forking()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        found = translator.translate(MANY, batch_tokens=40)
        with in_this_process(translator):
            assert found == translator.translate(MANY, batch_tokens=40)
    assert len(searched) == 1
    assert searched[0] > 2


def test_every_wish_of_a_line_reaches_the_processes() -> None:
    translator = forking()
    wishes: dict[str, Any] = {
        "prefix": ["the"] * len(MANY),
        "require": [["sea"]] * len(MANY),
        "forbid": [["dog", "cat"]] * len(MANY),
        "forbid_all": ["town"],
    }
    found = list(translator.stream(MANY, beam=3, batch_tokens=60, **wishes))
    with in_this_process(translator):
        assert found == list(translator.stream(MANY, beam=3, batch_tokens=60, **wishes))


def test_a_library_call_forks_nothing_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_workers_that_cannot_be(workers: Any) -> None:
    one = untrained()
    with pytest.raises(UserError, match=r"workers: .* at least 1 and at most 1024"):
        Translator(
            one.model, one.segmenter, one.vocab, "gl", "en", one.decode, one.device, workers=workers
        )


def test_all_cores_are_those_that_the_system_and_torch_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cpus, threads, expected in ((2, 8, 2), (8, 2, 2), (1, 1, 1)):
        monkeypatch.setattr(cores_module, "available_cpus", lambda cpus=cpus: cpus)
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert all_cores() == expected
    monkeypatch.setattr(cores_module, "CAN_FORK", False)
    assert all_cores() == 1


def test_processes_stay_while_weights_do() -> None:
    translator = forking()
    translator.model.prepare_for_inference(torch.float32)
    first = translator.translate(MANY)
    processes = running()
    assert len(processes) == 2
    assert translator.translate(MANY) == first
    assert len(translator.translate(MANY, beam=2, length_alpha=0.0)) == len(first)
    assert running() == processes
    translator.workers = 3
    assert translator.translate(MANY) == first
    assert len(running()) == 3
    assert not running() & processes


def test_an_ensemble_keeps_its_processes_if_all_its_models_stay() -> None:
    models = [forking(seed).transformer for seed in (2, 3)]
    models[0].prepare_for_inference(torch.float32)
    translator = forking()
    translator.model = Ensemble(models)
    translator.translate(MANY)
    assert running() == set()
    models[1].prepare_for_inference(torch.float32)
    translator.translate(MANY)
    assert len(running()) == 2


def test_weights_that_may_change_are_seen_by_the_next_call() -> None:
    translator = forking()
    before = translator.translate(MANY)
    assert running() == set()
    with torch.no_grad():
        for parameter in translator.model.parameters():
            parameter.mul_(-1.0)
    after = translator.translate(MANY)
    with in_this_process(translator):
        assert before != after == translator.translate(MANY)


def test_processes_that_ended_while_they_waited_begin_anew() -> None:
    translator = forking()
    translator.model.prepare_for_inference(torch.float32)
    expected = translator.translate(MANY)
    before = running()
    for process in before:
        assert process is not None
        os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while running() & before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert translator.translate(MANY) == expected
    assert not running() & before


def test_settings_of_the_caller_are_theirs() -> None:
    translator = forking()
    translator.model.prepare_for_inference(torch.float32)
    translator.translate(MANY)
    processes = running()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        translator.translate(MANY)
        assert not running() & processes
    processes = running()
    translator.model = forking(3).model
    found = translator.translate(MANY)
    assert not running() & processes
    assert found == forking(3).translate(MANY)


class Fails(Exception):
    """What a caller's own function raises."""


def test_a_call_works_while_the_failure_of_another_is_at_hand() -> None:
    translator = forking()
    translator.model.prepare_for_inference(torch.float32)
    expected = translator.translate(MANY)

    def fail(lines: int) -> None:
        if lines:
            raise Fails

    try:
        list(translator.stream(MANY, batch_tokens=40, progress=fail))
    except Fails:
        assert translator.translate(MANY) == expected


def test_a_call_within_a_call_works() -> None:
    translator = forking()
    translator.model.prepare_for_inference(torch.float32)
    expected = translator.translate(MANY)
    inner = []

    def progress(lines: int) -> None:
        if not inner:
            inner.append(translator.translate(MANY))

    found = [best[0].text for best in translator.stream(MANY, progress=progress)]
    assert [found] == inner == [expected]


def test_what_is_at_work_or_was_interrupted_is_not_used_again() -> None:
    cores = WorkerPool(lambda n: f"new {n}", 2)
    found = cores.map(range(100))
    next(found)
    assert not cores.alive  # at work, whatever ends it
    found.close()
    assert not cores.alive
    assert running() == set()


def test_a_deep_copy_has_processes_of_its_own() -> None:
    translator = forking()
    translator.model.prepare_for_inference(torch.float32)
    expected = translator.translate(MANY)
    twin = copy.deepcopy(translator)
    assert twin.translate(MANY) == expected
    assert len(running()) == 4


def test_threads_do_not_disturb_each_other() -> None:
    translator = forking()
    translator.model.prepare_for_inference(torch.float32)
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


def test_a_copy_in_a_forked_process_does_not_touch_them() -> None:
    with two_doing(lambda n: n + 1) as cores:
        child = os.fork()
        if child == 0:
            cores.close()
            os._exit(cores.alive)
        assert os.waitpid(child, 0)[1] == 0
        assert list(cores.map(range(5))) == [1, 2, 3, 4, 5]


ORPHANS = """
import multiprocessing, os, signal
from nmt.decoding.worker_pool import WorkerPool

first, second = (WorkerPool(lambda n: n, 2) for _ in range(2))
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_they_end_when_their_parent_is_killed() -> None:
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
    """Whether it is there, and not only its exit code."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def test_each_process_computes_with_one_thread_and_order_is_kept() -> None:
    found = mapped(lambda n: (n, torch.get_num_threads(), os.getpid()), range(200))
    assert [(n, threads) for n, threads, _ in found] == [(n, 1) for n in range(200)]
    assert os.getpid() not in {process for *_, process in found}


def test_large_items_and_results_do_not_wait_for_each_other() -> None:
    items = [bytes([n]) * 1_000_000 for n in range(20)]
    assert mapped(lambda item: item * 2, items) == [item * 2 for item in items]


def test_an_error_is_raised_here_and_ends_the_processes() -> None:
    def work(n: int) -> int:
        if n == 3:
            raise UserError("not this one", fix="leave it out")
        return n

    with two_doing(work) as cores:
        found = cores.map(range(10_000))
        assert [next(found) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(UserError, match="not this one") as caught:
            list(found)
        assert caught.value.fix == "leave it out"
        there = str(caught.value.__cause__)  # where it was raised, in the other process
        assert "Traceback" in there
        assert 'raise UserError("not this one", fix="leave it out")' in there
        assert not cores.alive
        assert running() == set()


def test_a_thread_that_compiles_does_not_leave_its_lock_to_the_processes() -> None:
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


def test_whoever_stops_reading_leaves_no_process() -> None:
    cores = WorkerPool(lambda n: n, 2)
    found = cores.map(range(10_000))
    assert next(found) == 0
    found.close()
    assert running() == set()


def test_a_process_that_is_killed_is_an_error_and_no_wait() -> None:
    def work(n: int) -> int:
        if n == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    with pytest.raises(MachineError, match="exit code -9") as caught:
        mapped(work, range(100))
    assert "--workers" in str(caught.value.fix)


def test_an_interruption_reaches_this_process_alone() -> None:
    """Ctrl-C goes to the whole group; what the processes had begun is still answered."""

    def work(n: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return n

    assert mapped(work, range(4)) == [0, 1, 2, 3]
