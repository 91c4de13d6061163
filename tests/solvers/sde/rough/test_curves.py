"""Forward variance curves and variance swaps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.rough import Bergomi, Heston

PARAMETERS = {"H": 0.1, "kappa": 0.8, "sigma": 0.4, "rho": -0.7}
TABLE = ([0.1, 0.4, 1.0], [0.03, 0.06, 0.05])


def test_a_curve_of_the_model_gives_its_prices():
    """With its own forward variance as a function the model has the same prices, Greeks and paths."""
    model = Heston(v0=0.04, theta=0.06, **PARAMETERS)
    curve = Heston(xi=model.forward_variance, **PARAMETERS)
    K, T = [0.8, 1.0, 1.2], [[0.1], [1.0]]
    np.testing.assert_allclose(curve.price(K, T, rtol=1e-11).value, model.price(K, T, rtol=1e-11).value, atol=1e-12)
    one, two = curve.greeks(K, 0.5), model.greeks(K, 0.5)
    for name in set(one) - {"kappa", "H", "T"}:  # with those the curve of v0 and theta changes
        np.testing.assert_allclose(one[name], two[name], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(curve.variance_swap([0.1, 2.0]), model.variance_swap([0.1, 2.0]), rtol=1e-13)
    paths = [each.sample([0.0, 0.2, 1.0], 20, rng=1) for each in (curve, model)]
    np.testing.assert_allclose(paths[0].S, paths[1].S, rtol=1e-10)


@pytest.mark.parametrize("model", [Heston(xi=TABLE, **PARAMETERS), Bergomi(H=0.1, eta=1.5, rho=-0.7, xi=TABLE)])
def test_expected_variance_is_the_curve(model):
    """Paths have the forward variance of the table on average, and its swap strike, which is exact for a table."""
    times = np.linspace(0.0, 1.0, 21)
    paths = model.sample(times, 20_000, rng=1)
    error = paths.V.std(0) / math.sqrt(20_000)
    expected = np.interp(times, *TABLE)
    np.testing.assert_allclose(model.forward_variance(times), expected)
    assert np.all(np.abs(paths.V.mean(0) - expected) < 4.0 * error + 1e-3 * expected)
    exact = 0.1 * 0.03 + 0.3 * 0.045 + 0.6 * 0.055
    assert model.variance_swap(1.0) == pytest.approx(exact, rel=1e-12)
    for monitored in (False, True):
        strike, error = paths.variance_swap(monitored=monitored)
        # A left sum of the curve in Bergomi's scheme; squared drifts of monitored returns.
        assert abs(strike - exact) < 4.0 * error + (1e-3 if isinstance(model, Bergomi) else 3e-4)


def test_bad_curves():
    """Curves are positive, and of one form; v0 and theta belong together."""
    for xi, kind in (
        ((1.0,), ShapeError),
        (([0.0, 1.0], [0.1]), InvalidInputError),
        (([0.0], [-1.0]), InvalidInputError),
    ):
        with pytest.raises(kind, match="xi"):
            Heston(xi=xi, **PARAMETERS)
    with pytest.raises(InvalidInputError, match="not finite and positive"):
        Heston(xi=lambda t: 0.5 - t, **PARAMETERS).price(1.0, 1.0)
    for given in ({"v0": 0.04}, {"v0": 0.04, "theta": 0.04, "xi": 0.04}, {"theta": 0.04, "xi": 0.04}, {}):
        with pytest.raises(InvalidInputError, match="v0 and theta"):
            Heston(**PARAMETERS, **given)


def test_the_variance_swap_of_one_path_has_no_error():
    """One path has a value; its statistical error is unknown, without a warning of NumPy."""
    paths = Bergomi(H=0.1, eta=1.0, rho=-0.5, xi=0.04).sample(np.linspace(0.0, 1.0, 5), rng=1)
    for monitored in (False, True):
        value, error = paths.variance_swap(monitored=monitored)
        assert value > 0.0 and np.isnan(error)
