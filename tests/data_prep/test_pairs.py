"""Filters drop what their names say, count it exactly and list its places."""

from dataclasses import replace

import pytest

from data_prep.pairs import length_ratio
from nmt.data.pair import Pair
from nmt.data.report import MAX_LISTED, Drops
from nmt.data.rules import BLANK, IDENTICAL, LENGTH, apply_rules, duplicates


@pytest.mark.parametrize(
    ("given", "dropped", "kept"),
    [
        (BLANK, Pair("", "a"), Pair("a", "b")),
        (BLANK, Pair("a", " \u00a0\u200b"), Pair(".", ".")),
        (IDENTICAL, Pair("RSSI", "RSSI "), Pair("RSSI", "rssi")),
        (replace(LENGTH, threshold=3), Pair("a b", "a b c d"), Pair("a b c", "d e f")),
        (length_ratio(2), Pair("a" * 31, "b" * 10), Pair("a" * 30, "b" * 10)),
    ],
)
def test_a_rule_drops_one_and_keeps_the_other(given, dropped, kept):
    assert list(apply_rules([dropped, kept], [given], Drops())) == [kept]


def test_first_filter_counts_and_lists_places():
    drops = Drops()
    pairs = [Pair("", "", "1"), Pair("a", "a", "2"), Pair("a", "b", "3"), Pair("c", "", "4")]
    kept = list(apply_rules(pairs, [BLANK, IDENTICAL], drops))
    assert kept == [pairs[2]]
    assert drops.report() == {
        "blank": {"count": 2, "first": "1 4"},
        "identical": {"count": 1, "first": "2"},
    }


def test_duplicates_keep_the_first_and_counts_are_exact_beyond_the_listed_places():
    drops = Drops()
    pairs = [Pair("a", "b", "1"), Pair("a", "c", "2"), *[Pair("a", "b", "3")] * (MAX_LISTED + 7)]
    assert list(apply_rules(pairs, [duplicates()], drops)) == pairs[:2]
    assert drops["duplicate"].count == MAX_LISTED + 7
    assert drops["duplicate"].lines == ["3"] * MAX_LISTED
