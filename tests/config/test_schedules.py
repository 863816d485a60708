"""Schedules against formulas written out, and the decay rules against histories traced by hand."""

import math

import pytest
from pydantic import ValidationError

from nmt.config.recipe import groups
from nmt.config.schedules import (
    Constant,
    InverseSqrt,
    Linear,
    LrRamp,
    NoWarmup,
    ValDecay,
    count_decays,
)
from tests import reference

NAN = math.nan
SCHEDULES = groups()["schedule"]


def history(*scores: float, every: int = 100, start: int = 100) -> list[tuple[int, float]]:
    return [(start + every * i, score) for i, score in enumerate(scores)]


@pytest.mark.parametrize("dim", [64, 512])
@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("warmup", [1, 400, 8000])
@pytest.mark.parametrize("update", [1, 2, 399, 400, 401, 7999, 8000, 8001, 100_000])
def test_inverse_sqrt_equals_equation_7(dim, scale, warmup, update):
    schedule = InverseSqrt(scale=scale, warmup_updates=warmup)
    expected = reference.inverse_sqrt_lr(update, dim, scale, warmup)
    assert schedule.lr(update, [], dim) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "dim", "rates"),
    [
        # up to 1/2 * 1/10 at update 100, half of that at 400
        (InverseSqrt(warmup_updates=100), 4, {1: 0.5 / 1000, 50: 0.025, 100: 0.05, 400: 0.025}),
        (InverseSqrt(warmup_updates=0), 4, {1: 0.5, 25: 0.1}),
        (InverseSqrt(scale=2.0), 512, {8000: 0.000988}),  # T section 3.3: about 10^-3
        (
            Linear(lr=1e-3, warmup_updates=100, total_updates=300, end_lr=2e-4),
            512,
            {1: 1e-5, 50: 5e-4, 100: 1e-3, 200: 6e-4, 300: 2e-4, 400: 2e-4},
        ),
        (Linear(lr=1.0, warmup_updates=0, total_updates=10), 8, {1: 0.9, 10: 0}),
        (NoWarmup(), 512, {1: 3e-4}),
        (LrRamp(), 512, {1: 5e-5, 2: 1e-4, 100: 5e-3}),  # N section 4.1, figure 5
    ],
)
def test_rates_by_hand(schedule, dim, rates):
    found = {update: schedule.lr(update, [], dim) for update in rates}
    assert found == pytest.approx(rates, rel=1e-3)


def test_inverse_sqrt_and_constant_ignore_dev_scores():
    falling = history(5, 4, 3, 2, 1, 0, 0, 0, 0)
    assert InverseSqrt().lr(9000, falling, 512) == InverseSqrt().lr(9000, [], 512)
    assert Constant(lr=0.01).lr(9000, falling, 512) == 0.01


# Each history is traced in the comment: * marks the validation at which the rate falls.
NO_GAIN = [
    ([], 0),
    ([10], 0),
    ([10, 11, 12, 13, 14], 0),
    ([10, 9, 9], 0),  # two without a gain
    ([10, 9, 9, 9], 1),  # 10, 9, 9, 9*
    ([10, 10, 10, 10], 1),  # a tie is no gain
    ([10, 9, 9, 9, 9, 9], 1),  # counts from 0 after the decay: 2 of 3
    ([10, 9, 9, 9, 9, 9, 9], 2),  # 10, 9, 9, 9*, 9, 9, 9*
    ([10, 9, 9, 11, 9, 9], 0),  # 11 is a gain just in time
    ([10, 9, 9, 9, 9.5, 9.7, 9.9], 2),  # rising, but below the best: still no gain
    ([10, 9, 9, 9, 11, 10, 10, 10], 2),  # a gain between two decays
    ([10, NAN, NAN, NAN], 1),  # NaN is no gain
    ([NAN, 1, 0, 0, 0], 1),  # NaN is never the best: 1 is a gain over it
    ([0, 0, 0, 0], 1),  # BLEU 0 for all
]


@pytest.mark.parametrize(("scores", "decays"), NO_GAIN)
def test_no_gain_decays_after_patience_validations_without_a_new_best(scores, decays):
    assert count_decays(history(*scores), 3, "no_gain") == decays


BELOW_ALL = [
    ([], 0),
    ([10, 11, 12], 0),
    ([10, 11, 12, 9], 1),  # 9 < 10, 11, 12
    ([10, 11, 12, 10], 0),  # equal to the lowest is not below it
    ([10, 11, 12, 9, 8], 2),  # 8 < 11, 12, 9: again, one validation later
    ([12, 11, 10, 11, 10, 11], 0),  # no gain for five, but never below all three
    ([10, 11, 9], 0),  # only two before it
    ([10, 11, 12, NAN], 0),  # NaN is not below anything
]


@pytest.mark.parametrize(("scores", "decays"), BELOW_ALL)
def test_below_all_decays_when_a_score_is_below_each_of_the_last_patience(scores, decays):
    assert count_decays(history(*scores), 3, "below_all") == decays


def test_patience_is_the_number_of_validations():
    flat = history(*[5.0] * 7)
    found = [count_decays(flat, patience, "no_gain") for patience in (1, 2, 3, 6, 7)]
    assert found == [6, 3, 2, 1, 0]


def test_val_decay_warms_up_as_equation_7_and_decays_on_plateaus():
    schedule = ValDecay(warmup_updates=400, decay=0.8, patience=3)
    peak = reference.inverse_sqrt_lr(400, 512, 1.0, 400)
    assert schedule.lr(200, [], 512) == pytest.approx(peak / 2)
    assert schedule.lr(400, [], 512) == pytest.approx(peak)
    assert schedule.lr(10_000, history(1, 2, 3, start=400), 512) == pytest.approx(peak)
    one = history(9, 8, 8, 8, start=400)
    assert schedule.lr(10_000, one, 512) == pytest.approx(0.8 * peak)
    two = history(9, 8, 8, 8, 8, 8, 8, start=400)
    assert schedule.lr(10_000, two, 512) == pytest.approx(0.64 * peak)


def test_val_decay_ignores_validations_during_the_warm_up():
    schedule = ValDecay(warmup_updates=400, patience=3)
    early = history(9, 8, 8, 8, start=100, every=90)  # the last one at update 370
    for update, at in ((380, 380), (500, 400)):
        expected = reference.inverse_sqrt_lr(at, 64, 1.0, 400)
        assert schedule.lr(update, early, 64) == pytest.approx(expected)


def test_no_warmup_decays_on_plateaus():
    scores = history(9, 8, 8, 8)
    assert NoWarmup().lr(5000, scores, 512) == pytest.approx(3e-4 * 0.8)
    other = NoWarmup(lr=1e-3, decay=0.5, patience=1)
    assert other.lr(5000, scores[:3], 512) == pytest.approx(1e-3 / 4)


def test_the_decay_rule_of_the_released_code_can_be_chosen():
    scores = history(12, 11, 11, 11.5, 11)  # no gain for four; the last one is not below all
    assert NoWarmup(rule="no_gain").lr(9, scores, 512) == pytest.approx(3e-4 * 0.8)
    assert NoWarmup(rule="below_all").lr(9, scores, 512) == pytest.approx(3e-4)


def test_linear_ends_after_its_updates_and_a_ramp_when_the_loss_explodes():
    linear = Linear(lr=1e-3, warmup_updates=100, total_updates=300)
    assert [linear.finished(update, 1.0) for update in (299, 300, 301)] == [False, True, True]
    losses = (1.5, 1.51, NAN, math.inf)
    assert [LrRamp().finished(100, loss) for loss in losses] == [False, True, True, True]


REQUIRED = {"linear": {"lr": 1e-3, "total_updates": 1000}, "constant": {"lr": 1e-3}}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_schedule_is_pure_positive_and_rejects_unknown_keys(kind):
    keys = REQUIRED.get(kind, {})
    schedule = SCHEDULES[kind](**keys)
    scores = history(3, 2, 1, 1, 1)
    rates = [schedule.lr(update, scores, 512) for update in range(1, 1000, 37)]
    assert rates == [SCHEDULES[kind](**keys).lr(n, list(scores), 512) for n in range(1, 1000, 37)]
    assert all(math.isfinite(rate) and rate > 0 for rate in rates)
    with pytest.raises(ValidationError):
        SCHEDULES[kind](**keys, warm_steps=3)


@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "linear", "lr": 1e-3, "warmup_updates": 10, "total_updates": 10},
        {"kind": "no_warmup", "decay": 1.0},
        {"kind": "val_decay", "patience": 0},
        {"kind": "inverse_sqrt", "scale": -1},
    ],
)
def test_contradictions_and_values_out_of_range_are_rejected(keys):
    with pytest.raises(ValidationError):
        SCHEDULES[keys["kind"]](**keys)
