"""Latency plus bytes over bandwidth, learned from copies that were made."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpfracc.engine.selection.transfers import TransferModel
from hpfracc.errors import InvalidInputError

ROUTE = "host->cuda:0"


def test_unknown_routes_get_a_sane_guess_and_kinds_a_prior() -> None:
    """A prior of a kind of route serves all of that kind."""
    model = TransferModel()
    assert 0.0 < model.estimate(ROUTE, 8_000_000) < 1.0
    model.set_prior("host->cuda", 1e-5, 1e10)
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
    model = TransferModel()
    model.set_prior("host->cuda", 1e-5, 1e10)
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
    with pytest.raises(InvalidInputError, match="rate=0"):
        model.set_prior("host->cuda", 1e-5, 0)
