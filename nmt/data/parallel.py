"""Segmenting pairs on all cores, in order, with bounded memory."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

from nmt.data.segment import Segmenter

CHUNK = 2000  # pairs encoded at a time
PARALLEL_FROM = 25  # chunks from which worker processes pay for their start
AHEAD = 2  # chunks in the pipe for each worker

Pair = tuple[str, str]
Segmented = tuple[list[list[str]], list[list[str]]]
Chunk = tuple[int, list[Pair]]


class Encode:
    """Chunk of pairs -> their pieces; BPE-dropout draws from the seed and the chunk's number."""

    def __init__(self, segmenter: Segmenter, src: str, tgt: str, seed: int) -> None:
        self._segmenter, self._src, self._tgt, self._seed = segmenter, src, tgt, seed

    def __call__(self, chunk: Chunk) -> Segmented:
        """Pieces of both sides."""
        number, pairs = chunk
        encode = self._segmenter.training_encoder([self._seed, number])
        return (
            [encode(src, self._src) for src, _ in pairs],
            [encode(tgt, self._tgt) for _, tgt in pairs],
        )


def segmented(
    pairs: Iterator[Pair], segmenter: Segmenter, src: str, tgt: str, seed: int
) -> Iterator[Segmented]:
    """Chunks of segmented pairs in the order of ``pairs``."""
    work = Encode(segmenter, src, tgt, seed)
    chunks = enumerate(iter(lambda: list(itertools.islice(pairs, CHUNK)), []))
    yield from map(work, itertools.islice(chunks, PARALLEL_FROM))
    rest = next(chunks, None)
    if rest is not None:
        yield from _on_all_cores(itertools.chain([rest], chunks), work)


def _on_all_cores(chunks: Iterator[Chunk], work: Encode) -> Iterator[Segmented]:
    on_linux = sys.platform == "linux"
    cores = len(os.sched_getaffinity(0)) if on_linux else os.cpu_count() or 1
    # a forked worker need not import anything again; it touches nothing but text
    context = multiprocessing.get_context("fork" if on_linux else "spawn")
    with context.Pool(cores, _start_worker, (work,)) as pool:
        waiting: deque[Any] = deque()
        for chunk in chunks:
            waiting.append(pool.apply_async(_run_worker, (chunk,)))
            if len(waiting) > AHEAD * cores:
                yield waiting.popleft().get()
        while waiting:
            yield waiting.popleft().get()


_worker: Encode | None = None  # set once in each worker process, so that it is not sent per chunk


def _start_worker(work: Encode) -> None:
    global _worker
    _worker = work


def _run_worker(chunk: Chunk) -> Segmented:
    assert _worker is not None
    return _worker(chunk)
