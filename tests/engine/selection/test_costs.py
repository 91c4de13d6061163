"""Predictions from knots, samples, neighbours and priors, with their bounds; and of transfers."""

from __future__ import annotations

import itertools
import math
import os
import threading

import numpy as np
import pytest

from hpfracc.engine.selection.costs import CostModel, TransferModel
from hpfracc.errors import InvalidInputError

KEY = ("op", "arm", "host", "float64")


@pytest.fixture
def costs() -> CostModel:
    return CostModel()


def test_samples_of_one_bucket_are_scaled_along_the_curve(costs: CostModel):
    """Calls of 1,000 and 2,000 share a bucket: an arm twice as slow as predicted at one is so at the other."""
    for x in (1e2, 1e4):
        costs.add_knot(KEY, x, 1e-9 * x**2)
    for x in itertools.islice(itertools.cycle((1000.0, 2000.0)), 30):
        costs.observe(KEY, "bucket", x, 2e-9 * x**2)
    assert costs.estimate(KEY, "bucket", 1000.0).seconds == pytest.approx(2e-3, rel=0.03)
    assert costs.estimate(KEY, "bucket", 2000.0).seconds == pytest.approx(8e-3, rel=0.03)


def test_the_first_samples_move_the_estimate_most_of_the_way(costs: CostModel):
    """One sample has twice the weight of a knot, eight have almost all of it; a prior has less than one sample."""
    costs.add_knot(KEY, 1000.0, 1e-3)
    costs.add_knot("prior", 1000.0, 1e-3, prior=True)
    for key, expected in ((KEY, (0.6, 0.75)), ("prior", (0.85, 1.0))):
        costs.observe(key, "bucket", 1000.0, 4e-3)
        moved = math.log(costs.estimate(key, "bucket", 1000.0).seconds / 1e-3) / math.log(4.0)
        assert expected[0] < moved < expected[1]


def test_certainty_falls_with_the_distance_from_knots(costs: CostModel):
    """Bounds are narrowest at a knot, widest beyond the last, and wider still for a prior."""
    for x in (1e2, 1e4):
        costs.add_knot(KEY, x, 1e-3)
        costs.add_knot("prior", x, 1e-3, prior=True)

    def width(key: object, x: float) -> float:
        found = costs.estimate(key, "bucket", x)
        assert found.low < found.seconds < found.high
        return found.high / found.low

    assert width(KEY, 1e2) < width(KEY, 1e3) < width(KEY, 1e6)
    assert width(KEY, 1e3) < width("prior", 1e3)


def test_a_constant_cost_lies_within_the_bounds_between_distant_knots(costs: CostModel):
    """Of 2 us and 0.2 ns a step, interpolated from 16 x 16 and 4,096 x 4,096 steps, at three standard deviations."""

    def seconds(x: float) -> float:
        return 2e-6 + 2e-10 * x

    for x in (2.0**8, 2.0**24):
        costs.add_knot(KEY, x, seconds(x))
    for power in range(9, 24):
        found = costs.estimate(KEY, "bucket", 2.0**power)
        assert found.seconds * (found.low / found.seconds) ** 3 < seconds(2.0**power) < found.seconds


@pytest.mark.parametrize("seconds", [math.nan, -1e-9, math.inf])
def test_invalid_times_are_refused(costs: CostModel, seconds: float):
    """The error names the value, and nothing is learned."""
    for learn in (
        lambda: costs.add_knot(KEY, 1.0, seconds),
        lambda: costs.observe(KEY, "bucket", 1.0, seconds),
        lambda: costs.compiling.buy(KEY, "code", seconds),
        lambda: costs.compiling.quote(KEY, "code", seconds),
        lambda: costs.compiling.set_prior(KEY, seconds),
    ):
        with pytest.raises(InvalidInputError, match="is not a time"):
            learn()
    assert costs.estimate(KEY, "bucket", 1.0).source == "none"
    assert costs.compiling.price(KEY, "code") == 0.0 and not costs.compiling.is_bought("code")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_the_lock_is_held_can_learn(costs: CostModel):
    """The lock that a thread of the parent holds is replaced in the child."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with costs._lock:
            held.set()
            done.wait(300.0)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(300.0)
    child = os.fork()
    if child == 0:
        costs.observe(KEY, "bucket", 1e3, 1e-3)
        os._exit(0 if costs.estimate(KEY, "bucket", 1e3).samples == 1 else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert status == 0


ROUTE = "host->cuda:0"


def test_learns_latency_and_bandwidth_through_noise() -> None:
    """Small copies tell the latency, large ones the rate; disturbed copies do not count."""
    model = TransferModel()
    rng = np.random.default_rng(0)
    for _ in range(40):
        disturbance = 1.0 + rng.exponential(0.3)
        model.observe(ROUTE, 1024, 2e-5 * disturbance)
        model.observe(ROUTE, 2**26, (2e-5 + 2**26 / 25e9) * disturbance)
    latency, rate = model.rates(ROUTE)
    assert latency == pytest.approx(2e-5, rel=0.3)
    assert rate == pytest.approx(25e9, rel=0.3)
    assert model.estimate(ROUTE, 2**28) == pytest.approx(2**28 / 25e9, rel=0.3)
