"""A translation does not depend on how a line is written in Unicode."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.recipe import FastBpeConfig, SentencePieceConfig, WhitespaceConfig
from nmt.decoding.translator import Translator
from tests.decoding.untrained import LINES, PAIRS, learned, untrained

SEGMENTERS = [FastBpeConfig(merges=50), SentencePieceConfig(vocab_size=60), WhitespaceConfig()]
ACCENTED = [*LINES, "á é ñ ç ü", "señorita, non é así"]
INVISIBLE = "\u200b\u200c\u200d\u200e\u2060\ufeff\u00ad\u2066\ufe0f\U000e0101"


@pytest.fixture(scope="module", params=SEGMENTERS, ids=lambda config: config.kind)
def translator(request: pytest.FixtureRequest) -> Translator:
    return untrained(words=learned(request.param, PAIRS * 5, normalize="clean"))


def test_equivalent_lines_have_equal_translations(translator):
    decomposed = [unicodedata.normalize("NFD", line) for line in ACCENTED]
    assert decomposed != ACCENTED
    assert translator.translate(decomposed) == translator.translate(ACCENTED)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.sampled_from(ACCENTED), st.text(st.sampled_from(INVISIBLE), min_size=1), st.integers(0))
def test_characters_that_nobody_sees_change_no_translation(translator, line, odd, place):
    place %= len(line) + 1
    changed = line[:place] + odd + line[place:]
    assert translator.translate([changed]) == translator.translate([line])


def test_lines_that_nobody_sees_are_blank(translator):
    assert translator.translate([*INVISIBLE, "\u3164", "\u115f"]) == [""] * (len(INVISIBLE) + 2)
