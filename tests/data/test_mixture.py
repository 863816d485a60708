"""How often an epoch has each pair: closed forms, and batches of a mixture."""

from __future__ import annotations

import numpy as np
import pytest

from nmt.data.batches import make_batches
from nmt.data.mixture import Mixture, copy_numbers, mixture_of, sampling_weights, shuffle_copies
from nmt.errors import UserError


def test_the_whole_part_of_a_weight_is_certain_and_the_rest_is_drawn():
    copies = Mixture([4000, 1000, 2000], [2.5, 1.0, 0.25]).copies(seed=3, epoch=7)
    first, second, third = np.split(copies, [4000, 5000])
    assert set(first) == {2, 3}
    assert set(second) == {1}
    assert set(third) == {0, 1}
    # within 4 standard deviations of a binomial distribution
    assert first.sum() == pytest.approx(10_000, abs=4 * (4000 * 0.25) ** 0.5)
    assert third.sum() == pytest.approx(500, abs=4 * (2000 * 0.1875) ** 0.5)


def test_the_draw_is_a_function_of_seed_and_epoch():
    mixture = Mixture([500], [1.5])
    one = mixture.copies(1, 0)
    assert one.tolist() == mixture.copies(1, 0).tolist()
    assert one.tolist() != mixture.copies(1, 1).tolist()
    assert one.tolist() != mixture.copies(2, 0).tolist()
    assert mixture.rows(1, 0).tolist() == np.repeat(np.arange(500), one).tolist()


def test_integer_weights_draw_nothing():
    assert Mixture([2, 3], [2, 1]).rows(1, 5).tolist() == [0, 0, 1, 1, 2, 3, 4]


def test_temperature_draws_in_proportion_to_a_root_of_the_size():
    assert sampling_weights([1, 1], [100, 10_000], 1.0) == [1, 1]
    small, large = sampling_weights([1, 1], [100, 10_000], 2.0)
    assert large == 1
    assert small * 100 / (large * 10_000) == pytest.approx((100 / 10_000) ** 0.5)
    assert sampling_weights([3, 1], [100, 10_000], 2.0)[0] == pytest.approx(3 * small)
    assert sampling_weights([1, 2], [0, 5], 5.0)[1] == 2  # an entry without pairs is harmless
    # an entry that is listed twice is drawn twice as often
    once, twice, _ = sampling_weights([1, 1, 1], [100, 100, 400], 2.0)
    assert once == twice == pytest.approx(2)


def test_without_weights_there_is_no_mixture():
    assert mixture_of([1, 1], [10, 20], 1.0) is None
    assert mixture_of([1, 1], [10, 10], 5.0) is None
    assert mixture_of([1, 2], [10, 20], 1.0) == Mixture([10, 20], [1, 2])


def test_weights_that_leave_no_pair_are_an_error():
    assert mixture_of([0.1], [10], 1.0) is not None
    with pytest.raises(UserError, match="less than one of 400 examples"):
        mixture_of([1e-9, 1e-9], [300, 100], 1.0)


def test_copies_of_a_row_are_far_apart():
    rows = Mixture([50, 1000], [4, 1]).rows(1, 0)
    order = shuffle_copies(rows, np.random.default_rng(1))
    assert sorted(order) == list(range(len(rows)))
    for row in range(50):
        gaps = np.diff(np.flatnonzero(rows[order] == row))
        assert gaps.min() > len(order) / 8  # they are a quarter of the epoch apart on average
    assert len(shuffle_copies(rows[:0], np.random.default_rng(1))) == 0


def test_copies_of_a_row_are_numbered():
    assert copy_numbers(np.array([0, 0, 0, 2, 5, 5])).tolist() == [0, 1, 2, 0, 0, 1]
    assert len(copy_numbers(np.zeros(0, np.int64))) == 0


@pytest.mark.parametrize("rebatch", [True, False])
def test_the_batches_of_an_epoch_have_each_drawn_row(rebatch: bool):
    rng = np.random.default_rng(5)
    rows = Mixture([100, 300], [2.5, 0.5]).rows(1, 2)
    src, tgt = rng.integers(1, 30, (2, 400))[:, rows]
    batches = make_batches(src, tgt, 200, 1, 2, rebatch, rows)
    assert sorted(np.concatenate(batches)) == list(range(len(rows)))
    longest = np.maximum(src, tgt) + 1
    assert all(len(batch) * longest[batch].max() <= 200 for batch in batches)
    again = make_batches(src, tgt, 200, 1, 2, rebatch, rows)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in again]


def test_batches_of_an_epoch_without_rows():
    none = np.zeros(0, np.int64)
    assert make_batches(none, none, 64, 1, 0, rows=none) == []
