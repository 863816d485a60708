"""Memory is bounded for any size of input: few lines are read ahead, fewer if they are long."""

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

from nmt.decoding.engine import Hypothesis, SearchInput
from nmt.decoding.translator import Translator
from tests.decoding.untrained import untrained
from tests.toy import lines_of_digits

pytestmark = pytest.mark.slow


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch) -> Translator:
    """A translator whose search returns the same hypothesis for each sentence."""
    translator = untrained()

    def search(inputs: Sequence[SearchInput], options: Any, stop: Any) -> list[list[Hypothesis]]:
        return [[Hypothesis([5, 6], -1.0, -1.0, True)] * options.n_best for _ in inputs]

    monkeypatch.setattr(translator.engine, "_search_batch", search)
    return translator


def texts(count: int) -> Iterator[str]:
    return itertools.islice(itertools.cycle(["pan", "a gata", "", "o mar"]), count)


Call = Callable[[Translator, int], Iterable[object]]
CALLS: dict[str, Call] = {
    "plain": lambda t, n: t.stream(texts(n), chunk_size=50),
    "n-best": lambda t, n: t.stream(texts(n), chunk_size=50, n_best=4),
    "constraints": lambda t, n: t.stream(
        texts(n), chunk_size=50, prefix=texts(n), require=itertools.repeat(["a dog"], n)
    ),
    "alignment": lambda t, n: t.stream(texts(n), chunk_size=50, align=True, token_scores=True),
    "scored": lambda t, n: t.score_stream(texts(n), texts(n), chunk_size=50),
    "resumed": lambda t, n: t.stream(texts(2 * n), chunk_size=50, skip=n),
}


@pytest.mark.parametrize("call", CALLS)
def test_finished_lines_leave_no_data(translator, call):
    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        found = iter(CALLS[call](translator, 2000))
        assert sum(1 for _ in itertools.islice(found, 250)) == 250
        before = held()
        assert sum(1 for _ in found) == 1750
        assert held() < before + 50_000  # an empty line would be 49 bytes
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- the real command


# the peak that the system reports to the parent would begin with that of this process
COMMAND = """
import sys
from pathlib import Path
from nmt.cli.translate import main
assert main(sys.argv[2:]) == 0
Path(sys.argv[1]).write_text(Path("/proc/self/status").read_text())
"""


def run_command(*argv: str | Path, source: Path, target: Path) -> int:
    """Translate one file to another; return the peak memory of the command in MiB."""
    stores = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    env = {name: value for name, value in os.environ.items() if name not in stores}
    status = target.with_suffix(".status")
    code = [sys.executable, "-c", COMMAND, str(status), *map(str, argv)]
    with source.open("rb") as given, target.open("wb") as out:
        subprocess.run(code, stdin=given, stdout=out, env=env, check=True)
    return int(status.read_text().partition("VmHWM:")[2].split()[0]) // 1024


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("flags", [["--beam", "1"], ["--n-best", "2"], ["--align"]], ids=" ".join)
def test_memory_of_the_command_does_not_grow_with_the_input(short_run, tmp_path, flags):
    peaks = []
    for count in (10_000, 100_000):
        source, target = tmp_path / f"{count}.gl", tmp_path / f"{count}.en"
        lines = itertools.islice(itertools.cycle(lines_of_digits(500, longest=3)), count)
        source.write_text("".join(f"{line}\n" for line in lines))
        argv = (short_run, "--device", "cpu", *flags)
        peaks.append(run_command(*argv, source=source, target=target))
        written = sum(1 for _ in target.open())
        assert written == count * (2 if "--n-best" in flags else 1)
    assert peaks[1] < peaks[0] + 50, peaks
