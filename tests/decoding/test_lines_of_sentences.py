"""A line of several sentences is translated in parts, equal to lines of one sentence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nmt.decoding.translator import Translation, Translator
from nmt.text.sentences import UsualLine
from tests.decoding.untrained import untrained

SENTENCES = ["O can bebe auga.", "A gata vella!", "Hoxe non chove?", "O mar, señor."]
SPACES = [" ", "  ", "\u00a0"]
LINE = "".join(f"{one}{space}" for one, space in zip(SENTENCES, [*SPACES, ""], strict=True))
OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 3, "n_best": 3, "length_alpha": 1.2},
    {"token_scores": True, "align": True},
    {"no_repeat_ngram": 2},
]


def translator(sentences: int | None = 1, **keys: Any) -> Translator:
    """Return a model of training lines of at most this number of sentences."""
    found = untrained(**keys)
    found.codec.usual = UsualLine(sentences)
    return found


def joined(parts: list[Translation]) -> str:
    return "".join(
        part.text + space for part, space in zip(parts, [*SPACES, ""], strict=True)
    ).strip()


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "default")
def test_a_line_is_the_translations_of_its_sentences(options):
    alone = list(translator().stream(SENTENCES, split="line", **options))
    (line,) = translator().stream([LINE], **options)
    assert len(line) == min(map(len, alone))
    for rank, one in enumerate(line):
        parts = [of_line[rank] for of_line in alone]
        assert one.text == joined(parts)
        assert one.pieces == [piece for part in parts for piece in part.pieces]
        assert one.score == pytest.approx(sum(part.score for part in parts), rel=1e-5)
        assert one.log_prob == pytest.approx(sum(part.log_prob for part in parts), rel=1e-5)
        assert one.finished == all(part.finished for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "default")
def test_a_line_of_one_sentence_is_translated_as_without_splitting(options):
    lines = [SENTENCES[0], "pan", "", "o can; a gata, 3.5 e www.a.gl", "1. pan"]
    found = list(translator().stream(lines, **options))
    assert found == list(translator().stream(lines, split="line", **options))


def test_alignment_and_scores_count_over_the_line():
    options: dict[str, Any] = {"token_scores": True, "align": True}
    alone = [best for (best,) in translator().stream(SENTENCES, **options)]
    (line,) = next(translator().stream([LINE], **options))
    codec = translator().codec
    links, log_probs, source, target = [], [], 0, 0
    for sentence, one in zip(SENTENCES, alone, strict=True):
        links += [(i + source, j + target) for i, j in one.alignment]
        log_probs += one.token_log_probs
        source += sum(codec.word_ends(codec.source_pieces(sentence)))
        target += sum(codec.word_ends(one.pieces))
    assert line.alignment == links
    assert line.token_log_probs == pytest.approx(log_probs, abs=1e-4)
    without_eos = [x for place, x in enumerate(line.token_log_probs) if place not in line.eos]
    assert len(without_eos) == len(line.pieces)


def test_n_lines_stay_n_lines():
    lines = ["", LINE, SENTENCES[0], "  ", f" {LINE} {LINE} ", LINE]
    found = translator().translate(lines)
    assert len(found) == len(lines)
    assert found == [translator().translate([line])[0] for line in lines]
    assert (found[0], found[3], found[1]) == ("", "", found[5])
    assert found[4] == f"{found[1]} {found[1]}"


def test_the_training_data_decides_which_lines_are_split():
    whole = translator().translate([LINE], split="line")
    assert translator(None).translate([LINE]) == whole  # not known
    assert translator(4).translate([LINE]) == whole
    halves = [SENTENCES[0] + " " + SENTENCES[1], SENTENCES[2] + "\u00a0" + SENTENCES[3]]
    expected = "  ".join(translator().translate(halves, split="line"))
    assert translator(2).translate([LINE]) == [expected]


@pytest.mark.slow
def test_a_line_with_a_prefix_or_a_required_phrase_is_not_split():
    lines, constraints = (
        [LINE, LINE, LINE],
        {"prefix": ["the", "", ""], "require": [[], ["the"], []]},
    )
    found = [best[0].text for best in translator().stream(lines, **constraints)]
    whole = [best[0].text for best in translator().stream(lines, split="line", **constraints)]
    assert found[:2] == whole[:2]
    assert found[2] == translator().translate([LINE])[0] != whole[2]


def test_each_sentence_is_ranked_by_a_reverse_model():
    both = translator()
    both.reverse = untrained(seed=4, langs=("en", "gl"))
    options: dict[str, Any] = {"reverse_weight": 3.0, "candidates": 6}
    alone = [best[0] for best in both.stream(SENTENCES, **options)]
    assert both.translate([LINE], **options) == [joined(alone)]
    assert alone != [best[0] for best in translator().stream(SENTENCES)]


def test_a_sample_of_a_part_is_not_that_of_another():
    line = f"{SENTENCES[0]} {SENTENCES[0]}"
    options: dict[str, Any] = {"sample": True, "seed": 3}
    (one,) = translator(eos_bias=0).n_best([line], 1, **options)[0]
    (alone,) = translator(eos_bias=0).n_best(SENTENCES[:1], 1, **options)[0]
    assert one.text.startswith(alone.text)
    assert one.text != f"{alone.text} {alone.text}"


def test_a_translation_far_too_short_is_marked():
    short = translator(eos_bias=9)  # ends at once
    short.codec.usual = dataclasses.replace(short.codec.usual, length_ratio=1.5)
    line = f"{'o can bebe auga e ' * 3} pan."
    found = [best for (best,) in short.n_best(["pan", line, f"Pan. {line}"], 1)]
    assert [one.short for one in found] == [False, True, True]
    short.codec.usual = dataclasses.replace(short.codec.usual, length_ratio=0.2)
    assert not short.n_best([line], 1)[0][0].short
    scored = short.score([line, "pan"], ["the", "the"])
    assert [one.short for one in scored] == [False, False]
