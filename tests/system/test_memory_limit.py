"""Preparation and translation keep their bounds of memory, at toy size."""

from __future__ import annotations

import sys

import pytest

from benchmarks import scale
from tests.long import memory_limit
from tests.toy import toy_corpus, toy_recipe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc"),
]
# more than the noise, and less than what a command needs to keep its lines: 2 x 100 bytes each
NOISE = 16  # MiB, of 90,000 lines


@pytest.mark.parametrize("command", memory_limit.BOUNDS)
def test_memory_grows_with_the_lines_no_more_than_is_stated(command, tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "TYPES", 1000)  # their number has a limit in larger text, too
    spaces = []
    for lines in (10_000, 100_000):
        folder = tmp_path / str(lines)
        folder.mkdir()
        _, _, _, space, limit = memory_limit.measure(command, lines, folder)
        assert 0 < space <= limit
        spaces.append(space)
    _, by_line = memory_limit.BOUNDS[command]
    assert spaces[1] - spaces[0] < by_line * 90_000 / scale.MIB + NOISE


def test_a_command_that_needs_more_than_the_limit_fails(tmp_path):
    toy_corpus(tmp_path, {"train": 60, "dev": 4, "test": 4})
    recipe = str(toy_recipe(tmp_path))
    with pytest.raises(SystemExit, match="nmt-prepare ended with exit code"):
        memory_limit.run_limited(["prepare", recipe], 60 * scale.MIB)
