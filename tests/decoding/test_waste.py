"""A batch computes few hypotheses more than its sentences alone: a count, not a time."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.engines import step_overhead
from tests.decoding.untrained import PAIRS, untrained

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("beam", [1, 5])
def test_finished_sentences_are_not_computed(beam):
    """Sentences of 1 to 12 words with outputs of any length, about thirty in a batch."""
    words, rng = " ".join(source for source, _ in PAIRS).split(), Random(1)
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(60)]
    translator = untrained(eos_bias=2.0)
    share = step_overhead(translator, lines, beam=beam, batch_tokens=800 * beam, max_len_offset=8)
    assert 1.0 <= share <= 1.03
