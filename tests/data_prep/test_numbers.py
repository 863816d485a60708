"""Numbers of a pair, as languages write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.cleaning.numbers import conflicting_digits


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("in 1999", "in 1999"),
        ("1,000,000 people", "1 million people"),
        ("12,50,000", "1,250,000"),
        ("12 लाख ५० हज़ार", "1.25 million"),
        ("30万", "300,000"),
        ("3億5000万", "350 million"),
        ("\u0661\u0669\u0669\u0668", "1998"),
        ("一九四五", "1945"),
        ("二〇二四", "2024"),
        ("3 of 12", "three of twelve"),
        ("born in 1948, died in 1999", "words only"),
        ("14:30", "half past two"),
        ("13:15-17:45, 19:00-22:30", "1:15-5:45, 7:00-10:30"),
        ("พ.ศ. 2567", "2024"),
        ("1445 هـ", "2024"),
        ("۱۴۰۳", "2024"),
        ("5784", "2024"),
        ("२०८१", "2024"),
        ("በ1983 ዓ.ም. 12", "1991, twelve"),
        ("令和6年12月", "December 2024"),
        ("民國113年5月", "May 2024"),
        ("단기 4357년", "2024"),
        ("15 رمضان 1445", "25 March 2024"),
        ("350 °F", "180 °C"),
        ("112 km", "70 miles"),
        ("+84 24 3825 1234", "024 3825 1234"),
        ("page 1", "page 2"),
    ],
)
def test_numbers_that_may_be_the_same(one: str, other: str) -> None:
    assert conflicting_digits(one, other) == 0
    assert conflicting_digits(other, one) == 0


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("in 1998", "in 2001", 1),
        ("in 1998", "in 1989", 1),  # the same digits
        ("in 1998 with 2345 others", "in 2001 with 2345 others", 6 / 14),
        ("12, 35 and 48", "15, 39 and 72", 1),
        ("2.50, 1.20 and 7.80", "3.10, 0.95 and 6.40", 10 / 12),
        ("flight 4512", "flight 8830", 1),
        ("card 1234 5678 9123 4567", "card", 1),
        ("一九四五", "1954", 1),
    ],
)
def test_numbers_that_conflict(one: str, other: str, share: float) -> None:
    assert conflicting_digits(one, other) == pytest.approx(share)
    assert conflicting_digits(other, one) == pytest.approx(share)


@given(st.text("0123456789 .,:万٣一二三a"), st.text("0123456789 .,:万٣一二三a"))
def test_the_share_is_symmetric_and_0_for_the_same_numbers(one: str, other: str) -> None:
    share = conflicting_digits(one, other)
    assert 0 <= share <= 1
    assert share == conflicting_digits(other, one)
    assert conflicting_digits(one, f"{one} {one}") == 0
