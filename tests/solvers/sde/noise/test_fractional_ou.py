"""The fractional Ornstein-Uhlenbeck process: its covariance, and paths that have it."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from hpfracc import noise
from hpfracc.errors import InvalidInputError
from tests.helpers.law import covariance_errors
from tests.helpers.thinned import thinned


def test_variance() -> None:
    """sigma^2 theta^(-2H) H Gamma(2H), to the digits given."""
    assert noise.FractionalOU(0.7).covariance(0.0, 0.0) == pytest.approx(0.6210846722521527, rel=1e-14)
    assert noise.FractionalOU(0.3, 2.0, 3.0).covariance(1.0, 1.0) == pytest.approx(
        9 * 2**-0.6 * 0.3 * float(mpmath.gamma(0.6)), rel=1e-13
    )


@pytest.mark.parametrize("index", [0.001, 0.02, 0.1, 0.3, 0.5, 0.7, 0.95, 0.999])
def test_covariance_at_all_lags(index: float) -> None:
    """Against a power series and a hyperbolic cosine in 80 digits: to 2e-12 of the variance, near and far."""
    process = noise.FractionalOU(index)
    lags = [1e-15, 1e-12, 1e-6, 0.01, 0.3, 1.0, 5.0, 20.0, 29.9, 30.1, 60.0]
    found = process.covariance(0.0, lags)
    with mpmath.workdps(80):
        h = mpmath.mpf(index)
        for value, lag in zip(found, lags, strict=True):
            u = mpmath.mpf(lag)
            series = u ** (2 * h) * mpmath.hyp1f2(1, h + mpmath.mpf(1) / 2, h + 1, u * u / 4)
            exact = (mpmath.gamma(2 * h + 1) * mpmath.cosh(u) - series) / 2
            assert abs(value - float(exact)) < 2e-12 * float(found[0])


def test_at_one_half_it_is_the_ordinary_process() -> None:
    """exp(-theta u) / (2 theta)."""
    lags = np.array([0.0, 0.1, 1.0, 10.0, 40.0])
    np.testing.assert_allclose(
        noise.FractionalOU(0.5, 2.0).covariance(0.0, lags), np.exp(-2 * lags) / 4, rtol=1e-9, atol=1e-16
    )


@pytest.mark.parametrize("index", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("times", [np.linspace(0, 3, 40), np.array([0.0, 0.1, 0.5, 2.0, 7.0])], ids=["even", "uneven"])
@thinned(one_in=2)
def test_covariance_of_paths(index: float, times: np.ndarray) -> None:
    """Stationary from the first point on: 20 pairs within 4 standard errors."""
    process = noise.FractionalOU(index, 1.5, 0.7)
    paths = process.sample(times, 5000, rng=1)
    chosen = np.random.default_rng(2).integers(0, times.size, (20, 2))
    expected = process.covariance(times[:, None], times)
    assert np.max(np.abs(covariance_errors(paths, expected, [(int(i), int(j)) for i, j in chosen]))) < 4


@pytest.mark.parametrize("index", [0.05, 0.5, 0.9])
def test_long_paths_have_an_embedding(index: float) -> None:
    """20,000 points, slow and fast return."""
    for theta in (0.1, 10.0):
        path = noise.FractionalOU(index, theta).sample(np.linspace(0, 20, 20_001), rng=3)
        assert path.shape == (20_001,) and np.all(np.isfinite(path))


def test_refuses() -> None:
    """Rates and sizes that are not positive."""
    for parameters in ((1.2, 1.0, 1.0), (0.3, 0.0, 1.0), (0.3, 1.0, -1.0)):
        with pytest.raises(InvalidInputError):
            noise.FractionalOU(*parameters)
