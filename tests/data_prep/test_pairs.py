"""Filters drop what their names say, count it exactly and list its places."""

import pytest

from data_prep.pairs import (
    EMPTY_SIDE,
    IDENTICAL_SIDES,
    Pair,
    apply_rules,
    drop_duplicates,
    length,
    length_ratio,
)
from nmt.data.report import MAX_LISTED, Drops


@pytest.mark.parametrize(
    ("given", "dropped", "kept"),
    [
        (EMPTY_SIDE, Pair("", "a"), Pair("a", "b")),
        (EMPTY_SIDE, Pair("a", " \u00a0"), Pair(".", ".")),
        (IDENTICAL_SIDES, Pair("RSSI", "RSSI "), Pair("RSSI", "rssi")),
        (length(2, 3), Pair("a", "b c"), Pair("a b", "a b c")),
        (length(2, 3), Pair("a b", "a b c d"), Pair("a b c", "d e f")),
        (length_ratio(2), Pair("a" * 31, "b" * 10), Pair("a" * 30, "b" * 10)),
    ],
)
def test_a_rule_drops_one_and_keeps_the_other(given, dropped, kept):
    assert list(apply_rules([dropped, kept], [given], Drops())) == [kept]


def test_first_filter_counts_and_lists_places():
    drops = Drops()
    pairs = [Pair("", "", "1"), Pair("a", "a", "2"), Pair("a", "b", "3"), Pair("c", "", "4")]
    kept = list(apply_rules(pairs, [EMPTY_SIDE, IDENTICAL_SIDES], drops))
    assert kept == [pairs[2]]
    assert drops.report() == {
        "empty side": {"count": 2, "first": "1 4"},
        "identical sides": {"count": 1, "first": "2"},
    }


def test_duplicates_keep_the_first_and_counts_are_exact_beyond_the_listed_places():
    drops = Drops()
    pairs = [Pair("a", "b", "1"), Pair("a", "c", "2"), *[Pair("a", "b", "3")] * (MAX_LISTED + 7)]
    assert list(drop_duplicates(pairs, drops)) == pairs[:2]
    assert drops["duplicate pair"].count == MAX_LISTED + 7
    assert drops["duplicate pair"].lines == ["3"] * MAX_LISTED
