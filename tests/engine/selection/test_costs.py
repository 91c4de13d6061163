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


@pytest.mark.parametrize(
    ("knots", "x", "source"),
    [((), 1e3, "none"), ((("prior", 1e3),), 1e3, "prior"), ((("knot", 1e3),), 1e3, "knots")],
)
def test_the_source_is_named(costs: CostModel, knots: tuple[tuple[str, float], ...], x: float, source: str):
    """The prior or the knots, until there is a sample in the bucket."""
    for kind, place in knots:
        costs.add_knot(KEY, place, 1e-3, prior=kind == "prior")
    found = costs.estimate(KEY, "bucket", x)
    assert (found.source, found.samples) == (source, 0)
    costs.observe(KEY, "bucket", x, 1e-3)
    found = costs.estimate(KEY, "bucket", x)
    assert (found.source, found.samples) == ("samples", 1)


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


def test_without_knots_samples_of_other_sizes_are_used(costs: CostModel):
    """Interpolated between two sampled buckets; beyond one, time is proportional to work."""
    for x in (1e3, 1e5):
        for _ in range(5):
            costs.observe(KEY, x, x, 1e-8 * x)
    between = costs.estimate(KEY, "between", 1e4)
    assert (between.source, between.samples) == ("samples", 0)
    assert between.seconds == pytest.approx(1e-4, rel=0.01)
    assert costs.estimate(KEY, "beyond", 1e7).seconds == pytest.approx(1e-1, rel=0.05)


def test_extra_time_is_added_to_knots_and_never_to_samples(costs: CostModel):
    """It stands for transfers that the knots leave out; measured calls include them."""
    costs.add_knot(KEY, 1e3, 1e-3)
    assert costs.estimate(KEY, "bucket", 1e3, 2e-3).seconds == pytest.approx(3e-3)
    for _ in range(32):
        costs.observe(KEY, "bucket", 1e3, 3e-3)
    assert costs.estimate(KEY, "bucket", 1e3, 2e-3).seconds == pytest.approx(3e-3, rel=0.01)


def test_a_calibrated_knot_replaces_the_one_before(costs: CostModel):
    """Cached estimates are recomputed, also those with samples."""
    costs.add_knot(KEY, 1e3, 1e-3)
    costs.observe(KEY, "bucket", 1e3, 5e-3)
    assert costs.estimate(KEY, "other", 1e3).seconds == pytest.approx(1e-3)
    before = costs.estimate(KEY, "bucket", 1e3).seconds
    costs.add_knot(KEY, 1e3, 5e-3)
    assert costs.estimate(KEY, "other", 1e3).seconds == pytest.approx(5e-3)
    assert before < costs.estimate(KEY, "bucket", 1e3).seconds == pytest.approx(5e-3)


def test_drift_is_reported_and_followed(costs: CostModel):
    """After four slow times in a row the estimate follows them."""
    for number in range(20):
        assert costs.observe(KEY, "bucket", 1e3, 1e-3 * (1 + 0.01 * (number % 3))) is False
    verdicts = [costs.observe(KEY, "bucket", 1e3, 3e-3) for _ in range(4)]
    assert verdicts[-1] is True
    assert costs.estimate(KEY, "bucket", 1e3).seconds == pytest.approx(3e-3, rel=0.01)


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


def test_eight_threads_lose_no_sample(costs: CostModel):
    """Each thread adds to its own key and to a shared one; no sample is lost until the ring is full."""

    def work(number: int) -> None:
        for step in range(20):
            costs.observe(number, "bucket", 1e3, 1e-3)
            costs.estimate(number, "bucket", 1e3)
            if step % 5 == 0:
                costs.observe("all", "bucket", 1e3, 1e-3)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [costs.estimate(number, "bucket", 1e3).samples for number in range(8)] == [20] * 8
    assert costs.estimate("all", "bucket", 1e3).samples == 32


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


def test_unknown_routes_get_a_sane_guess_and_kinds_a_prior() -> None:
    """A prior of a kind of route serves all of that kind."""
    model = TransferModel()
    assert 0.0 < model.estimate(ROUTE, 8_000_000) < 1.0
    model = TransferModel({"host->cuda": (1e-5, 1e10)})
    assert model.estimate(ROUTE, 10**10) == pytest.approx(1.0, rel=1e-3)
    assert model.estimate("host->cuda:3", 0) == pytest.approx(1e-5)


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


def test_routes_are_told_apart() -> None:
    """The way in says nothing of the way out."""
    model = TransferModel()
    before = model.estimate("cuda:0->host", 2**24)
    for _ in range(8):
        model.observe(ROUTE, 2**24, 1.0)
    assert model.estimate("cuda:0->host", 2**24) == before
    assert model.estimate(ROUTE, 2**24) > 0.5


def test_medium_copies_tell_the_rate_until_large_ones_do() -> None:
    """A program that only ever moves half a mebibyte is learned from as well."""
    model = TransferModel({"host->cuda": (1e-5, 1e10)})
    for _ in range(8):
        model.observe(ROUTE, 2**19, 1e-5 + 2**19 / 2e9)
    assert model.rates(ROUTE)[1] == pytest.approx(2e9, rel=0.01)
    model.observe(ROUTE, 2**24, 1e-5 + 2**24 / 5e9)
    assert model.rates(ROUTE)[1] == pytest.approx(5e9, rel=0.01)


def test_a_clock_that_stood_still_spoils_nothing() -> None:
    """Copies that took no time at all leave a finite estimate; what is no time is refused."""
    model = TransferModel()
    for nbytes in (1024, 2**24):
        model.observe(ROUTE, nbytes, 0.0)
    assert 0.0 < model.estimate(ROUTE, 2**24) < math.inf
    with pytest.raises(InvalidInputError, match="seconds=nan"):
        model.observe(ROUTE, 1024, math.nan)
