"""Scores by length and words by frequency: closed forms, and parts that add up to the complete."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from sacrebleu.metrics import BLEU

from nmt.apps.evaluate.buckets import (
    FREQUENCIES,
    FrequencyBucket,
    Range,
    count_words,
    frequency_buckets,
    length_buckets,
    split_words,
)
from nmt.scoring.metrics import score
from nmt.scoring.systems import Systems
from tests.scoring.texts import hypothesis, reference


def systems(hyps: list[str], refs: list[str], tokenized: bool = False) -> Systems:
    words = {"system": hyps}
    return Systems(words, refs, words, refs, "ref", "en", "none", tokenized=tokenized)


def test_ranges_name_their_integers():
    assert [str(Range(*ends)) for ends in ((0, 9), (3, 3), (1000, None))] == ["0-9", "3", ">=1,000"]


def test_lines_are_sorted_by_the_length_of_the_reference():
    refs = ["a b", "a b c", "a b c d e", "x, y"]  # the comma is a word: 3 words
    hyps = ["a b", "a b x", "no match at all here", "x, y"]
    found = length_buckets(systems(hyps, refs), "system", ["bleu", "chrf"], limits=(3, 4, 5))
    assert [(str(b.words), b.lines) for b in found] == [("0-2", 1), ("3", 2), (">=5", 1)]
    assert found[1].scores == score([hyps[1], hyps[3]], [refs[1], refs[3]], ["bleu", "chrf"], "en")


def test_one_bucket_has_the_score_of_the_corpus():
    refs = reference(40)
    hyps = hypothesis(refs, 30)
    metrics = ["bleu", "chrf", "ter"]
    (bucket,) = length_buckets(systems(hyps, refs), "system", metrics, limits=())
    assert bucket.scores == score(hyps, refs, metrics, "en")
    assert bucket.lines == 40


def test_matches_are_clipped_in_each_line():
    given = systems(["the the cat", "new"], ["the dog", "cat"], tokenized=True)
    # the cat of the other line is not a match
    counts = {"the": 7, "cat": 2, "dog": 2}
    found = frequency_buckets(given, "system", counts, limits=(1, 5))
    assert found == [
        FrequencyBucket(Range(0, 0), 0, 1, 0),
        FrequencyBucket(Range(1, 4), 2, 1, 0),
        FrequencyBucket(Range(5, None), 1, 2, 1),
    ]
    assert (found[0].recall, found[0].precision, found[0].f1) == (None, 0, 0)
    assert (found[2].recall, found[2].precision, found[2].f1) == (1, 0.5, pytest.approx(2 / 3))


def test_buckets_add_up_to_the_unigrams_of_bleu():
    refs = reference(40)
    hyps = hypothesis(refs, 30)
    found = frequency_buckets(systems(hyps, refs), "system", count_words(refs[:20], "en"))
    assert len(found) == len(FREQUENCIES) + 1
    bleu = BLEU().corpus_score(hyps, [refs])
    assert sum(b.matches for b in found) == bleu.counts[0]
    assert sum(b.hyp_words for b in found) == bleu.sys_len
    assert sum(b.ref_words for b in found) == bleu.ref_len


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_words_are_counted_as_they_are_split(lang):
    """Tokenizing each distinct string once equals tokenizing lines, for any text."""
    draw = random.Random(5)
    parts = [*"15aB.,-", "&amp;", "&quot;", *"('é我 \u00a0"]
    lines = ["".join(draw.choices(parts, k=draw.randrange(20))) for _ in range(1000)]
    expected = Counter(word for words in split_words(lines, lang) for word in words)
    assert count_words(lines, lang) == expected
    assert expected["1,5"] > 0
