"""Changed files of each kind are read or refused, and soon; ``tests/long/fuzz.py`` tries more."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi")
pytest.importorskip("transformers")  # makes a public model

from tests import fuzzing

pytestmark = pytest.mark.slow
EXAMPLES = 150  # for each target; all together take two minutes
SECONDS = 5  # of processor time for each example
LONGEST = 50_000  # bytes of an example
SIGNS = [b"\0", b"\xff", b"\n", b"\t", b'"', b"{", b"}", b"[", b"<", b">", b"&", b"*", b"-",
         b"9" * 9, b"1e999", b"null", "\u2028\ud7ff".encode(), b"../", b"\xff\xff\x7f"]  # fmt: skip
# place and length of what is replaced, in thousandths of the file; how often; by what
EDITS = st.lists(
    st.tuples(
        st.integers(0, 999), st.integers(0, 200), st.integers(0, 300),
        st.sampled_from(SIGNS) | st.binary(max_size=8) | st.none(),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_a_changed_file_is_read_or_refused(name: str) -> None:
    target = fuzzing.target(name)

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.sampled_from(target.examples), EDITS)
    def change(example: bytes, edits: list[tuple[int, int, int, bytes | None]]) -> None:
        for place, length, times, sign in edits:
            start = len(example) * place // 1000
            end = start + len(example) * length // 1000
            part = example[start:end] if sign is None else sign  # None repeats what is there
            example = (example[:start] + part * times + example[end:])[:LONGEST]
        started = time.process_time()
        fuzzing.refuses(target, example)
        assert time.process_time() - started < SECONDS

    change()
