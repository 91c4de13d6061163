"""Curves of time over work: linear between knots in log-log coordinates, bounded slopes beyond them."""

from __future__ import annotations

import math

import pytest

from hpfracc.engine.selection.costs import Curve, extended, log_seconds
from hpfracc.engine.selection.rent_or_buy import log_work


def curve_of(*knots: tuple[float, float]) -> Curve:
    return Curve((math.log(x), math.log(seconds)) for x, seconds in knots)


def seconds_at(curve: Curve, x: float) -> float:
    return math.exp(curve.at(math.log(x)))


def test_a_power_law_is_exact_between_its_knots():
    """Two knots of ``x**1.3``, in any order, give all values between them."""
    curve = curve_of((1e6, 1e6**1.3), (1e2, 1e2**1.3))
    for x in (1e2, 3e3, 1e5, 1e6):
        assert seconds_at(curve, x) == pytest.approx(x**1.3)


@pytest.mark.parametrize(("steepness", "least", "most"), [(-1.0, 0.0, 1.0), (0.0, 0.0, 1.0), (4.0, 1.0, 1.5)])
def test_beyond_the_last_knot_the_slope_is_bounded(steepness: float, least: float, most: float):
    """Whatever the last knots do, the slope beyond them is between 0 and 1.5."""
    curve = curve_of((1e3, 1.0), (1e4, 10.0**steepness))
    growth = math.log(seconds_at(curve, 1e6) / seconds_at(curve, 1e4)) / math.log(1e2)
    assert least <= growth <= most


def test_below_the_first_knot_time_falls_no_faster_than_work():
    """A steep first slope is not extrapolated to times that no call can reach."""
    curve = curve_of((1e3, 1e-3), (1e4, 1.0))
    assert seconds_at(curve, 10.0) >= 1e-3 * 1e-2 * (1 - 1e-9)


def test_one_knot_gives_time_proportional_to_work():
    """Until there is a second one."""
    assert seconds_at(curve_of((100.0, 1e-3)), 1000.0) == pytest.approx(1e-2)


def test_distances_are_to_the_nearest_knot_and_to_the_ends():
    """Both in log work; the distance beyond the ends is 0 between them."""
    curve = curve_of((1.0, 1.0), (math.e**4, 2.0))
    assert curve.distance(1.5) == pytest.approx(1.5)
    assert curve.distance(3.0) == pytest.approx(1.0)
    assert (curve.beyond(3.0), curve.beyond(6.0), curve.beyond(-1.0)) == pytest.approx((0.0, 2.0, 1.0))


def test_calibration_supersedes_the_prior_and_the_prior_extends_it():
    """Within its range the calibrated curve counts; beyond it the prior's shape continues from its last knot."""
    prior = {x: 10e-9 * x for x in (1e2, 1e4, 1e6, 1e8)}
    found = extended({1e3: 1e-6, 1e5: 1e-4}, prior)
    assert found is not None
    assert seconds_at(found, 1e4) == pytest.approx(1e-5)  # the prior says 1e-4
    assert seconds_at(found, 1e8) == pytest.approx(1e-1)  # ten times below the prior, as at 1e5
    assert extended({}, {}) is None
    only_prior = extended({}, prior)
    assert only_prior is not None and seconds_at(only_prior, 1e5) == pytest.approx(1e-3)


def test_nothing_is_too_small_for_a_logarithm():
    """An empty call counts as one step, and a time of 0 as a nanosecond."""
    assert log_work(0.0) == 0.0
    assert math.exp(log_seconds(0.0)) == pytest.approx(1e-9)
