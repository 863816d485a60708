"""Worker processes keep the order and end; a thread makes items ahead."""

from __future__ import annotations

import functools
import gc
import itertools
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nmt.config.recipe import FastBpeConfig, SentencePieceConfig, WhitespaceConfig
from nmt.data import workers
from nmt.data.encoded import EncodeChunk
from nmt.data.lines import Texts
from nmt.data.segmenters import learn_segmenter
from nmt.data.segmenters.bpe import count_words
from nmt.data.workers import Prefetcher, in_chunks, map_chunks
from nmt.errors import UserError
from tests.toy import one_corpus

PAIRS = [(f"a {i}", f"b {i}") for i in range(50)]


class Look:
    """Return the process id and the pairs."""

    def __init__(self, fail_at: Texts | None = None) -> None:
        self.fail_at = fail_at

    def __call__(self, pairs: list[Texts]) -> tuple[int, list[Texts]]:
        if self.fail_at in pairs:
            raise UserError("no such thing", at="here:3", fix="look there")
        return os.getpid(), pairs


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CHUNK", 3)
    monkeypatch.setattr(workers, "MIN_PARALLEL_CHUNKS", 2)
    monkeypatch.setattr(workers, "available_cpus", lambda: 2)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    "start", [workers.START_METHOD, pytest.param("spawn", marks=pytest.mark.slow)]
)
def test_every_pair_is_processed_once_and_in_order(monkeypatch: pytest.MonkeyPatch, start: str):
    monkeypatch.setattr(workers, "START_METHOD", start)
    done = list(map_chunks(Look(), in_chunks(PAIRS)))
    assert [len(pairs) for _, pairs in done] == [*[3] * 16, 2]
    assert [pair for _, pairs in done for pair in pairs] == PAIRS
    assert os.getpid() not in {pid for pid, _ in done}
    assert multiprocessing.active_children() == []


class Garbage:
    """Print the process id where it is freed; only the garbage collector does that."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        os.write(1, f"{os.getpid()}\n".encode())


def collect(chunk: list[Texts]) -> int:
    gc.collect()
    return os.getpid()


def map_with_garbage() -> None:
    workers.CHUNK, workers.MIN_PARALLEL_CHUNKS = 3, 2
    workers.available_cpus = lambda: 2
    gc.disable()
    Garbage()
    assert os.getpid() not in set(map_chunks(collect, in_chunks(PAIRS)))
    os.write(1, f"{os.getpid()}\n".encode())
    gc.collect()


@pytest.mark.slow
def test_garbage_of_the_parent_is_not_freed_in_a_worker():
    """A model of CTranslate2 would wait for its threads, which a fork does not have."""
    program = "from tests.data.test_workers import map_with_garbage as run; run()"
    command = [sys.executable, "-c", program]  # without the settings of tests/conftest.py
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ended, parent = done.stdout.split()[::-1]
    assert ended == parent


@pytest.mark.usefixtures("small_chunks")
def test_error_in_a_worker_is_raised_unchanged():
    with pytest.raises(UserError) as error:
        list(map_chunks(Look(fail_at=PAIRS[15]), in_chunks(PAIRS)))
    assert str(error.value) == "here:3: no such thing\n  -> look there"
    assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_input_error_or_early_close_ends_the_workers():
    def broken() -> Iterator[Texts]:
        yield from PAIRS[:20]
        raise UserError("cannot be read")

    with pytest.raises(UserError, match="cannot be read"):
        list(map_chunks(Look(), in_chunks(broken())))
    left = map_chunks(Look(), in_chunks(PAIRS))
    next(left)
    left.close()
    assert multiprocessing.active_children() == []


def process_id(chunk: list[int]) -> int:
    return os.getpid()


@pytest.mark.skipif(workers.START_METHOD != "fork", reason="other systems cannot do this")
@pytest.mark.usefixtures("small_chunks")
def test_workers_end_when_their_parent_is_killed():
    reader, writer = os.pipe()
    parent = os.fork()
    if not parent:
        try:
            results = map_chunks(process_id, in_chunks(itertools.count()))
            pids = set(itertools.islice(results, 9))
            os.write(writer, " ".join(map(str, pids)).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)  # each worker has a copy, so reading ends when the last worker ends
    pids = [int(pid) for pid in os.read(reader, 1000).split()]
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    ready, _, _ = select.select([reader], [], [], 10)
    for pid in [] if ready else pids:
        os.kill(pid, signal.SIGKILL)
    os.close(reader)
    assert pids
    assert ready


@pytest.mark.usefixtures("small_chunks")
def test_read_ahead_is_bounded():
    read = itertools.count()
    pairs = (("a", str(next(read))) for _ in range(10_000))
    done = map_chunks(Look(), in_chunks(pairs))
    for _ in range(4):
        next(done)
    ahead = workers.READ_AHEAD * 2 + 1
    assert next(read) <= (4 + ahead) * 3
    done.close()


@pytest.mark.parametrize("cores", [1, 8])
def test_few_pairs_need_no_workers(monkeypatch: pytest.MonkeyPatch, cores: int):
    monkeypatch.setattr(workers, "available_cpus", lambda: cores)
    few = PAIRS * (3 * workers.CHUNK // len(PAIRS))
    done = list(map_chunks(Look(), in_chunks(few)))
    assert {pid for pid, _ in done} == {os.getpid()}
    assert [len(pairs) for _, pairs in done] == [workers.CHUNK] * 3
    assert list(map_chunks(Look(), [])) == []


@pytest.mark.parametrize(
    "config",
    [
        FastBpeConfig(merges=20, dropout=0.3),
        SentencePieceConfig(vocab_size=30, model_type="unigram", sampling_alpha=0.2),
        WhitespaceConfig(),
    ],
    ids=lambda config: config.kind,
)
def test_work_can_be_pickled(config):
    [chunk] = text = one_corpus(PAIRS)
    segmenter = learn_segmenter(config, False, "nfc", text)
    work = EncodeChunk(segmenter, 100, 3, segmenter.noise(config))
    (made, _), (again, _) = work(chunk), pickle.loads(pickle.dumps(work))(chunk)
    for side, sent in ((made["src"], again["src"]), (made["tgt"], again["tgt"])):
        assert sent.types == side.types
        assert sent.rows.ids.tolist() == side.rows.ids.tolist()
        assert sent.rows.lengths.tolist() == side.rows.lengths.tolist()
    count = functools.partial(count_words, segmenter.moses)
    assert pickle.loads(pickle.dumps(count))(chunk) == count(chunk)
    assert count(chunk)["a"] == 50


def test_items_and_order_are_unchanged():
    with Prefetcher(range(50)) as prefetched:
        assert list(prefetched) == list(range(50))


def test_error_reaches_the_consumer_and_the_thread_ends():
    def failing() -> Iterator[int]:
        yield 1
        raise IndexError("beyond")

    with Prefetcher(failing()) as prefetched:
        stream = iter(prefetched)
        assert next(stream) == 1
        with pytest.raises(IndexError, match="beyond"):
            next(stream)
        with pytest.raises(IndexError):  # a second iteration must not wait forever
            next(iter(prefetched))
    with Prefetcher(itertools.count()) as prefetched:
        next(iter(prefetched))
    assert not prefetched._thread.is_alive()
