"""Memory is bounded whatever the input's size: by a window of lines, of a few if they are long."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import train
from nmt.decoding.codec import SearchInput
from nmt.decoding.search import Hypothesis
from nmt.decoding.translator import Translator
from nmt.decoding.windows import CHARACTERS, read_chunks
from tests.decoding.untrained import untrained
from tests.toy import lines_of_digits, toy_corpus, toy_recipe


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        ([], []),
        ([1] * 7, [3, 3, 1]),
        ([0] * 3, [3]),
        ([CHARACTERS] * 2, [1, 1]),
        ([CHARACTERS - 1, 1, 5, 5], [2, 2]),
    ],
)
def test_a_window_ends_with_its_lines_or_its_characters(
    sizes: list[int], lengths: list[int]
) -> None:
    found = list(read_chunks(sizes, 3, lambda size: size))
    assert [len(window) for window in found] == lengths
    assert list(itertools.chain.from_iterable(found)) == sizes


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch) -> Translator:
    """All of it but the search, which says the same of each sentence."""
    translator = untrained()

    def search(sentences: Sequence[SearchInput], options: Any) -> list[list[Hypothesis]]:
        return [[Hypothesis([5, 6], -1.0, -1.0, True)] * options.n_best for _ in sentences]

    monkeypatch.setattr(translator, "_search_batch", search)
    return translator


def texts(count: int) -> Iterator[str]:
    return itertools.islice(itertools.cycle(["pan", "a gata", "", "o mar"]), count)


Way = Callable[[Translator, int], Iterable[object]]
WAYS: dict[str, Way] = {
    "plain": lambda t, n: t.stream(texts(n), window=50),
    "n-best": lambda t, n: t.stream(texts(n), window=50, n_best=4),
    "wishes": lambda t, n: t.stream(
        texts(n), window=50, prefix=texts(n), require=itertools.repeat(["a dog"], n)
    ),
    "examined": lambda t, n: t.stream(texts(n), window=50, align=True, token_scores=True),
    "scored": lambda t, n: t.score_stream(texts(n), texts(n), window=50),
    "resumed": lambda t, n: t.stream(texts(2 * n), window=50, skip=n),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_kept_of_lines_that_are_done(translator: Translator, way: str) -> None:
    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        found = iter(WAYS[way](translator, 2000))
        assert sum(1 for _ in itertools.islice(found, 250)) == 250
        before = held()
        assert sum(1 for _ in found) == 1750
        assert held() < before + 50_000  # an empty line would be 49 bytes
    finally:
        tracemalloc.stop()


def test_few_long_lines_are_read_ahead(translator: Translator) -> None:
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for _ in range(40):
            read += 1
            yield "pan " * (CHARACTERS // 40)  # ten of them fill a window

    for done, _ in enumerate(translator.stream(lines()), 1):
        assert read - done < 10
    assert done == 40


# ---------------------------------------------------------------- the real command


def run_command(*argv: str | Path, source: Path, target: Path) -> int:
    """MiB of memory that the command held at most, from file to file."""
    stores = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    env = {name: value for name, value in os.environ.items() if name not in stores}
    with source.open("rb") as given, target.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "nmt.cli.translate", *map(str, argv)],
            stdin=given, stdout=out, env=env,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss // 1024


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--beam", "1"], ["--n-best", "2"], ["--align"]], ids=" ".join)
def test_the_command_streams(tmp_path: Path, flags: list[str]) -> None:
    toy_corpus(tmp_path, {"train": 40, "dev": 4, "test": 4})
    recipe = toy_recipe(tmp_path, {"train": {"validate_every": 1, "max_validations": 1}})
    assert train.main([str(recipe)]) == 0
    peaks = []
    for count in (10_000, 100_000):
        source, target = tmp_path / f"{count}.gl", tmp_path / f"{count}.en"
        lines = itertools.islice(itertools.cycle(lines_of_digits(500, longest=3)), count)
        source.write_text("".join(f"{line}\n" for line in lines))
        argv = (tmp_path / "run", "--device", "cpu", *flags)
        peaks.append(run_command(*argv, source=source, target=target))
        written = sum(1 for _ in target.open())
        assert written == count * (2 if "--n-best" in flags else 1)
    assert peaks[1] < peaks[0] + 50, peaks
