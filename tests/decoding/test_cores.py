"""Batches in several processes: the same text, errors as they are, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nmt.decoding import cores
from nmt.decoding import translator as translator_module
from nmt.decoding.cores import can_fork, on_cores
from nmt.errors import MachineError, UserError
from tests.decoding.untrained import LINES, untrained

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are not forked")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    open_files = os.listdir("/proc/self/fd")
    yield
    assert torch.get_num_threads() == 2
    assert multiprocessing.active_children() == []
    assert len(os.listdir("/proc/self/fd")) == len(open_files)
    torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_processes_change_no_text(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator_module, "WORTH_CORES", 0)
    searched = []

    def watched(work: Any, items: list[Any]) -> Iterator[Any]:
        searched.append(len(items))
        return on_cores(work, items)

    monkeypatch.setattr(translator_module, "on_cores", watched)
    translator = untrained()
    lines = [*LINES * 4, "", "pan"]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        assert can_fork()
        found = translator.translate(lines, batch_tokens=40)
        torch.set_num_threads(1)
        assert not can_fork()
        assert found == translator.translate(lines, batch_tokens=40)
    assert len(searched) == 1
    assert searched[0] > 2
    torch.set_num_threads(2)


def test_each_process_computes_with_one_thread_and_order_is_kept() -> None:
    found = list(on_cores(lambda n: (n, torch.get_num_threads(), os.getpid()), range(200)))
    assert [(n, threads) for n, threads, _ in found] == [(n, 1) for n in range(200)]
    assert os.getpid() not in {process for *_, process in found}


def test_more_items_than_a_pipe_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "MOST", 7)
    assert list(on_cores(lambda n: n * n, range(50))) == [n * n for n in range(50)]


def test_large_results_do_not_wait_for_each_other() -> None:
    found = on_cores(lambda n: bytes([n]) * 1_000_000, range(20))
    assert [(answer[0], len(answer)) for answer in found] == [(n, 1_000_000) for n in range(20)]


def test_an_error_is_raised_here_and_ends_the_processes() -> None:
    def work(n: int) -> int:
        if n == 3:
            raise UserError("not this one", fix="leave it out")
        return n

    found = on_cores(work, range(10_000))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match="not this one") as caught:
        list(found)
    assert caught.value.fix == "leave it out"


def test_whoever_stops_reading_leaves_no_process() -> None:
    found = on_cores(lambda n: n, range(10_000))
    assert next(found) == 0
    found.close()


def test_a_process_that_is_killed_is_an_error_and_no_wait() -> None:
    def work(n: int) -> int:
        if n == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    with pytest.raises(MachineError, match="exit code -9") as caught:
        list(on_cores(work, range(100)))
    assert "OMP_NUM_THREADS" in str(caught.value.fix)


def test_an_interruption_reaches_this_process_alone() -> None:
    """Ctrl-C goes to the whole group; what the processes had begun is still answered."""

    def work(n: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return n

    assert list(on_cores(work, range(4))) == [0, 1, 2, 3]
