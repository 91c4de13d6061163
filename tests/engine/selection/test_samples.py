"""The typical value of the last times, and when it has changed."""

from __future__ import annotations

import math
import random

import pytest

from hpfracc.engine.selection.costs import KEPT, CostModel, Typical, find_change, typical


def fed(*times: float) -> Typical:
    return typical([math.log(seconds) for seconds in times])


def value(*times: float) -> float:
    return math.exp(fed(*times).level)


def test_the_last_ones_count():
    """The last 32 are kept."""
    costs = CostModel()
    for seconds in [1.4] * 3 + [1.0] * KEPT:
        costs.observe("key", "bucket", 1.0, seconds)
    found = costs.estimate("key", "bucket", 1.0)
    assert found.samples == KEPT
    assert found.seconds == pytest.approx(1.0)


def test_slow_outliers_do_not_count():
    """One time in ten that is eight times as long leaves the typical time alone."""
    times = [8.0 if number % 10 == 0 else 1.0 for number in range(KEPT)]
    assert value(*times) == pytest.approx(1.0)
    assert not fed(*times).erratic


def test_an_arm_that_is_fast_one_time_in_three_is_not_fast():
    """The lower quartile alone would take it for as fast as its best times."""
    assert 1.2 < value(*[1.0 if number % 3 == 0 else 1.5 for number in range(KEPT)]) <= 1.5


def test_a_single_hiccup_is_none_and_two_are_a_cost():
    """However long, one time does not make the mean count; several that keep it above twice the typical time do."""
    assert value(*[1.0] * 15, 1000.0) == pytest.approx(1.0)
    assert fed(*[1.0] * 15, 1000.0).erratic
    assert value(*[1.0] * 14, 1000.0, 1000.0) == pytest.approx((14.0 + 2000.0) / 16.0)
    assert value(1000.0, 1000.0, *[1.0] * 14) == pytest.approx(1.0)  # not lately


def test_uncertainty_shrinks_with_the_number_of_samples():
    """And grows with their spread."""
    few, many = fed(*[1.0, 1.2] * 2), fed(*[1.0, 1.2] * 16)
    assert many.sigma < few.sigma < fed(1.0).sigma
    assert fed(*[1.0, 3.0] * 16).sigma > many.sigma


@pytest.mark.parametrize("factor", [3.0, 1 / 3.0])
def test_a_change_is_noticed_and_the_past_dropped(factor: float):
    """Four times in a row beyond the earlier ones, up or down; the first of them are only unusual."""
    costs = CostModel()
    usual = [costs.observe("key", "bucket", 1.0, seconds) for seconds in [1.0, 1.1, 0.95] * 8]
    assert not any(usual)
    for number in range(4):
        assert costs.observe("key", "bucket", 1.0, factor)
        assert costs.estimate("key", "bucket", 1.0).samples == (4 if number == 3 else 25 + number)
    assert costs.estimate("key", "bucket", 1.0).seconds == pytest.approx(factor)


def test_noise_is_rarely_mistaken_for_a_change():
    """Times of which one in eight is ten times as long: fewer than one false alarm in 2,000."""
    rng = random.Random(1)
    ratios: list[float] = []
    alarms = 0
    for _ in range(20_000):
        ratios = [*ratios, math.log(10.0) if rng.random() < 0.125 else rng.gauss(0.0, 0.1)][-KEPT:]
        _, outdated = find_change(ratios)
        ratios = ratios[outdated:]
        alarms += outdated > 0
    assert alarms < 10
