"""Calibration to implied volatilities."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.rough import Bergomi, Heston

T = np.array([[0.1], [0.5], [1.5]])
K = 100.0 * np.exp(0.2 * np.sqrt(T) * np.linspace(-1.5, 1.0, 5))
TRUTH = Heston(H=0.12, v0=0.04, theta=0.06, kappa=0.8, sigma=0.4, rho=-0.65, S0=100.0, r=0.03)
START = Heston(H=0.2, v0=0.06, theta=0.04, kappa=1.5, sigma=0.3, rho=-0.3, S0=100.0, r=0.03)


@pytest.mark.parametrize(
    "free", [("H", "sigma", "rho"), pytest.param(None, marks=pytest.mark.slow)], ids=["three", "all six"]
)
def test_heston_is_recovered(free):
    """The parameters of a synthetic surface, in few evaluations."""
    quotes = TRUTH.implied_volatility(K, T).value
    fixed = {} if free is None else {name: getattr(TRUTH, name) for name in ("v0", "theta", "kappa")}
    found = dataclasses.replace(START, **fixed).calibrate(K, T, quotes, free=free)
    assert found.success and found.evaluations < 25
    for name, value in found.parameters.items():
        assert value == pytest.approx(getattr(TRUTH, name), rel=2e-4), name
    assert found.root_mean_square < 1e-6 and np.abs(found.residuals).max() < 1e-5
    assert found.fitted.shape == quotes.shape and found.model.S0 == 100.0
    np.testing.assert_allclose(found.fitted, found.model.implied_volatility(K, T).value, atol=1e-5)


@pytest.mark.slow
def test_standard_errors():
    """Fits to quotes with noise deviate from the truth by their standard errors, with known and unknown noise."""
    rng = np.random.default_rng(1)
    free = ("sigma", "rho", "v0")
    quotes = TRUTH.implied_volatility(K, T).value
    scores = []
    for number in range(6):
        noisy = quotes + 1e-3 * rng.standard_normal(quotes.shape)
        found = TRUTH.calibrate(K, T, noisy, free=free, error=1e-3 if number % 2 else None)
        scores += [(found.parameters[name] - getattr(TRUTH, name)) / found.standard_errors[name] for name in free]
    assert 0.5 < np.sqrt(np.mean(np.square(scores))) < 1.6


def test_bergomi_is_recovered():
    """Within the standard errors, which include the sampling error, from a surface of other random numbers."""
    truth = Bergomi(H=0.1, eta=1.8, rho=-0.8, xi=0.05)
    strikes = K[:2] / 100.0
    quotes = truth.implied_volatility(strikes, T[:2], paths=20_000, steps=32, rng=5).value
    start = Bergomi(H=0.2, eta=1.2, rho=-0.5, xi=0.03)
    found = start.calibrate(strikes, T[:2], quotes, paths=2000, steps=32)
    assert found.success and found.root_mean_square < 4e-3
    for name, value in found.parameters.items():
        error = found.standard_errors[name]
        assert abs(value - getattr(truth, name)) < 4.0 * error < 1.0, name


def test_what_quotes_do_not_determine_is_told():
    """One maturity at the money does not determine six parameters."""
    strikes = np.linspace(0.98, 1.02, 6) * 100.0
    found = START.calibrate(strikes, 1.0, np.full(6, 0.2), max_evaluations=8)
    assert not found.success and len(found.message) > 10


def test_bad_quotes():
    """Shapes, signs, names and options are checked."""
    with pytest.raises(ShapeError, match="do not broadcast"):
        START.calibrate(np.ones(2), np.ones(3), 0.2)
    with pytest.raises(InvalidInputError, match="volatility has entries"):
        START.calibrate([1.0, 2.0], 1.0, [0.2, -0.1])
    with pytest.raises(InvalidInputError, match="give at least as many"):
        START.calibrate([90.0, 100.0], 1.0, 0.2)
    with pytest.raises(InvalidInputError, match="free='S0'"):
        START.calibrate([90.0, 100.0], 1.0, 0.2, free=["S0"])
    with pytest.raises(InvalidInputError, match="'paths'"):
        START.calibrate([90.0, 100.0], 1.0, 0.2, free=["v0"], paths=3)
    assert dataclasses.replace(START, v0=None, theta=None, xi=lambda t: 0.04 + 0 * t)._free_names() == (
        "H",
        "kappa",
        "sigma",
        "rho",
    )
