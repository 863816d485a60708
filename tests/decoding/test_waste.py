"""A batch computes hardly more hypotheses than its sentences do alone; exact on any machine."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.engines import step_overhead
from tests.decoding.untrained import PAIRS, untrained


@pytest.mark.parametrize("beam", [1, 5])
def test_finished_sentences_take_no_part(beam: int) -> None:
    """Sentences of 1 to 12 words, whose outputs end anywhere, in batches of some thirty."""
    words, rng = " ".join(source for source, _ in PAIRS).split(), Random(1)
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(60)]
    translator = untrained(eos_bias=2.0)
    share = step_overhead(translator, lines, beam=beam, batch_tokens=800 * beam, max_len_offset=8)
    assert 1.0 <= share <= 1.03
