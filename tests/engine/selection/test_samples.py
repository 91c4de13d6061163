"""The typical value of the last times, and when it has changed."""

from __future__ import annotations

import math
import random

import pytest

from hpfracc.engine.selection.times import KEPT, Drift, TimeSamples


def fed(*times: float) -> TimeSamples:
    samples = TimeSamples()
    for seconds in times:
        samples.add(1.0, seconds, math.log(seconds))
    return samples


def typical(samples: TimeSamples) -> float:
    return math.exp(samples.level)


def test_the_last_ones_count():
    """The last 32 are kept."""
    samples = fed(*[5.0] * 3, *[1.0] * KEPT)
    assert len(samples) == KEPT
    assert typical(samples) == pytest.approx(1.0)


def test_slow_outliers_do_not_count():
    """One time in ten that is eight times as long leaves the typical time alone."""
    samples = fed(*[8.0 if number % 10 == 0 else 1.0 for number in range(KEPT)])
    assert typical(samples) == pytest.approx(1.0)
    assert not samples.erratic


def test_an_arm_that_is_fast_one_time_in_three_is_not_fast():
    """The lower quartile alone would take it for as fast as its best times."""
    samples = fed(*[1.0 if number % 3 == 0 else 1.5 for number in range(KEPT)])
    assert 1.2 < typical(samples) <= 1.5


def test_a_single_hiccup_is_none_and_two_are_a_cost():
    """However long, one time does not make the mean count; several that keep it above twice the typical time do."""
    assert typical(fed(*[1.0] * 15, 1000.0)) == pytest.approx(1.0)
    assert fed(*[1.0] * 15, 1000.0).erratic
    assert typical(fed(*[1.0] * 14, 1000.0, 1000.0)) == pytest.approx((14.0 + 2000.0) / 16.0)
    assert typical(fed(1000.0, 1000.0, *[1.0] * 14)) == pytest.approx(1.0)  # not lately


def test_uncertainty_shrinks_with_the_number_of_samples():
    """And grows with their spread."""
    few, many = fed(*[1.0, 1.2] * 2), fed(*[1.0, 1.2] * 16)
    assert many.sigma < few.sigma < fed(1.0).sigma
    assert fed(*[1.0, 3.0] * 16).sigma > many.sigma


@pytest.mark.parametrize("factor", [3.0, 1 / 3.0])
def test_a_change_is_noticed_and_the_past_dropped(factor: float):
    """Four times in a row beyond the earlier ones, up or down; the first of them are only suspicious."""
    samples = fed(*[1.0, 1.1, 0.95] * 8)
    verdicts = [samples.add(1.0, factor, math.log(factor)) for _ in range(4)]
    assert verdicts == [Drift.SUSPECTED] * 3 + [Drift.CONFIRMED]
    assert typical(samples) == pytest.approx(factor)
    assert len(samples) == 4


def test_a_breakout_below_is_told_at_once():
    """A single time below the band may be news: the arm may have become faster."""
    samples = fed(*[1.0, 1.1] * 8)
    assert samples.recent_low is None
    samples.add(1.0, 0.3, math.log(0.3))
    assert samples.recent_low == pytest.approx(math.log(0.3))
    samples.add(1.0, 1.0, 0.0)
    assert samples.recent_low is None


def test_noise_is_rarely_mistaken_for_a_change():
    """Times of which one in eight is ten times as long: fewer than one false alarm in 2,000."""
    rng = random.Random(1)
    samples = TimeSamples()
    alarms = 0
    for _ in range(20_000):
        ratio = math.log(10.0) if rng.random() < 0.125 else rng.gauss(0.0, 0.1)
        alarms += samples.add(1.0, math.exp(ratio), ratio) is Drift.CONFIRMED
    assert alarms < 10


def test_another_curve_gives_other_ratios():
    """Rebasing replaces them and forgets the band that was made of the old ones."""
    samples = fed(*[1.0] * 20)
    samples.rebase([math.log(2.0)] * 20)
    assert typical(samples) == pytest.approx(2.0)
    assert samples.add(1.0, 2.0, math.log(2.0)) is Drift.NONE
