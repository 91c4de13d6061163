"""Barrier options by sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.rough import Bergomi, Heston

STRIKES = np.array([95.0, 110.0])


def down_and_out_call(spot, K, level, T, r, q, volatility):
    """The closed form with constant volatility, for a level below the strike (Merton, 1973)."""

    def call(s):
        d = (np.log(s / K) + (r - q + 0.5 * volatility**2) * T) / (volatility * math.sqrt(T))
        other = d - volatility * math.sqrt(T)
        return s * math.exp(-q * T) * special.ndtr(d) - K * math.exp(-r * T) * special.ndtr(other)

    return call(spot) - (level / spot) ** (2.0 * (r - q) / volatility**2 - 1.0) * call(level**2 / spot)


@pytest.mark.parametrize(
    "model",
    [
        Bergomi(H=0.1, eta=0.0, rho=-0.5, xi=0.04, S0=100.0, r=0.03, q=0.01),
        Heston(H=0.3, xi=0.04, kappa=0.5, sigma=0.005, rho=-0.5, S0=100.0, r=0.03, q=0.01),
    ],
)
def test_constant_volatility(model):
    """Without randomness of the variance the bridges are exact, with few steps."""
    found = model.barrier(STRIKES, 1.0, 90.0, paths=20_000, steps=16, rng=1)
    exact = down_and_out_call(100.0, STRIKES, 90.0, 1.0, 0.03, 0.01, 0.2)
    assert np.all(np.abs(found.value - exact) < 4.0 * found.statistical + found.discretisation)
    assert np.all(found.statistical < 0.06)
    np.testing.assert_allclose(found.error, found.statistical + found.discretisation)


@pytest.mark.parametrize(
    "model",
    [
        Heston(H=0.1, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7, S0=100.0, r=0.03),
        Bergomi(H=0.1, eta=1.8, rho=-0.8, xi=0.04, S0=100.0, r=0.03),
    ],
)
def test_error_covers_finer_steps(model):
    """A price with few steps has an error that reaches the one with many; in and out make the European option."""
    few = model.barrier(100.0, 1.0, 90.0, paths=8000, steps=16, rng=1)
    many = model.barrier(100.0, 1.0, 90.0, paths=8000, steps=64, rng=2)
    assert abs(few.value - many.value) < few.discretisation + 3.0 * (few.statistical + many.statistical)
    assert many.discretisation < 0.5
    knocked_in = model.barrier(100.0, 1.0, 90.0, paths=8000, steps=64, rng=2, knock="in")
    options = {} if isinstance(model, Heston) else {"paths": 8000, "steps": 64, "rng": 3}
    european = model.price(100.0, 1.0, **options)
    assert abs(knocked_in.value + many.value - european.value) < 4.0 * many.statistical + 0.01


def test_an_upper_barrier_and_the_same_seed():
    """A call that ends at its strike is worthless; a barrier far away changes nothing; the seed gives the price."""
    model = Bergomi(H=0.1, eta=1.0, rho=-0.5, xi=0.04)
    assert model.barrier(1.2, 1.0, 1.2, paths=500, steps=16, rng=1).value == 0.0
    far, farther = (model.barrier(1.0, 0.1, level, paths=500, steps=16, rng=1) for level in (1e3, 1e4))
    assert far == farther and far.discretisation < 1e-3


def test_bad_barriers():
    """Levels, steps and kinds are checked."""
    model = Bergomi(H=0.1, eta=1.0, rho=-0.5, xi=0.04)
    for given, message in (
        ({"level": 1.0}, "is S0"),
        ({"level": 0.9, "steps": 17}, "odd"),
        ({"level": 0.9, "knock": "up"}, "knock='up'"),
        ({"level": 0.9, "steps": 4}, "steps=4"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            model.barrier(1.0, 1.0, **given)
