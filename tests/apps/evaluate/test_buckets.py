"""Scores by length: closed forms, and parts that add up to the complete."""

from __future__ import annotations

from nmt.apps.evaluate.buckets import Range, length_buckets
from nmt.scoring.metrics import score
from nmt.scoring.systems import Systems
from tests.scoring.texts import hypothesis, reference


def systems(hyps: list[str], refs: list[str]) -> Systems:
    words = {"system": hyps}
    return Systems(words, refs, words, refs, "ref", "en", "none")


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
