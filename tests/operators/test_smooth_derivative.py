"""Derivatives of noisy samples: coverage of the band, orders, grids, and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError

Array = np.ndarray


def exact(t: Array, alpha: float) -> Array:
    """Caputo derivative of 1 + sin(3 t), by D^alpha e^(zt) = z^p t^(p - alpha) E_(1, p - alpha + 1)(z t)."""
    p = math.ceil(alpha)
    return ((3j) ** p * t ** (p - alpha) * hf.mittag_leffler(3j * t, 1.0, p - alpha + 1.0)).imag


def coverage(alpha: float, draws: int, noise: str | float) -> tuple[float, float]:
    """Share of points within two standard errors, and the mean error over the root mean square."""
    random = np.random.default_rng(7)
    t = np.sort(random.uniform(0.0, 2.0, 120))
    t -= t[0]
    truth = exact(t, alpha)
    inside, errors = [], []
    for _ in range(draws):
        found = hf.smooth_derivative(
            1.0 + np.sin(3.0 * t) + 0.02 * random.standard_normal(t.size), t, alpha, noise=noise
        )
        low, high = found.band()
        inside.append(np.mean((low <= truth) & (truth <= high)))
        errors.append(np.sqrt(np.mean((found.value - truth) ** 2) / np.mean(truth**2)))
    return float(np.mean(inside)), float(np.mean(errors))


@pytest.mark.parametrize(("alpha", "most"), [(0.5, 0.06), (1.0, 0.12), (1.5, 0.15), (2.6, 0.4)])
def test_the_band_covers(alpha: float, most: float):
    """Bands of two standard errors cover on a grid that is not uniform, and the derivative is no noise."""
    inside, error = coverage(alpha, 8, "estimate")
    assert inside > 0.9 and error < most


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["estimate", 0.02])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.0, 2.6])
def test_the_band_covers_in_many_draws(alpha: float, noise: str | float):
    """On average over 1,000 draws at least 95 % of the points are within the band."""
    assert coverage(alpha, 1000, noise)[0] > 0.95


def test_the_noise_is_found():
    """The estimated noise is that of the samples, and a known one is used."""
    random = np.random.default_rng(3)
    t = np.linspace(0.0, 5.0, 400)
    samples = np.exp(-t) + 0.05 * random.standard_normal(400)
    found = hf.smooth_derivative(samples, t, 0.7)
    assert found.noise == pytest.approx(0.05, rel=0.1)
    assert np.abs(found.smooth - np.exp(-t)).max() < 0.05
    assert 2.0 <= found.degrees_of_freedom < 20.0
    known = hf.smooth_derivative(samples, t, 0.7, noise=0.1)
    assert known.noise == 0.1 and known.standard_error.mean() > found.standard_error.mean()
    assert "400 points" in repr(known)


def test_polynomials_are_exact():
    """Curves without a penalty are kept: t^2 has the derivative 2 t^(2 - alpha) / Gamma(3 - alpha)."""
    t = np.concatenate([[0.0], np.geomspace(0.01, 3.0, 40)])
    found = hf.smooth_derivative(t**2, t, 1.4)
    np.testing.assert_allclose(found.value, 2.0 * t**0.6 / math.gamma(1.6), atol=1e-6)


def test_units_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch):
    """The unit of time scales the result, and samples may be compressed in blocks."""
    random = np.random.default_rng(4)
    t = np.linspace(0.0, 1.0, 150)
    samples = np.cos(4.0 * t) + 0.01 * random.standard_normal(150)
    one, other = hf.smooth_derivative(samples, t, 0.5), hf.smooth_derivative(samples, 3.0 + 100.0 * t, 0.5)
    np.testing.assert_allclose(other.value, one.value / 10.0, rtol=1e-6, atol=1e-8)
    monkeypatch.setattr("hpfracc.operators._smooth_derivative._ROWS", 37)
    blocks = hf.smooth_derivative(samples, t, 0.5)
    np.testing.assert_allclose(blocks.value, one.value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(blocks.standard_error, one.standard_error, rtol=1e-5)


def test_too_few_nodes_are_reported():
    """Samples with less noise than the nodes resolve: a warning, and none with a node for each."""
    t = np.linspace(0.0, 1.0, 400)
    with pytest.warns(AccuracyWarning, match="of 50 nodes.*give more nodes, up to 400"):
        hf.smooth_derivative(np.sin(t), t, 0.5, nodes=50)
    found = hf.smooth_derivative(np.sin(t), t, 0.5, nodes=400)
    assert np.mean(np.abs(found.value - hf.caputo(np.sin, t, 0.5)) <= 2.0 * found.standard_error) > 0.95


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"alpha": 3.5}, InvalidInputError, "alpha=3.5: give a finite number above 0 and at most 3"),
        ({"noise": -0.1}, InvalidInputError, "noise=-0.1"),
        ({"noise": "guess"}, InvalidInputError, "noise='guess'"),
        ({"t": np.r_[0.0, 2.0, 1.0, 3.0:10.0]}, InvalidInputError, r"t must increase, but goes back at t\[2\]=1"),
        ({"f": np.r_[np.nan, 1.0:10.0]}, InvalidInputError, "f has entries that are not finite"),
        ({"f": np.ones(9)}, ShapeError, "9 samples and t 10 times"),
        ({"f": np.ones(3), "t": np.arange(3.0)}, ShapeError, "3 samples are too few; give at least 4"),
        ({"nodes": 2}, InvalidInputError, "nodes=2"),
    ],
)
def test_bad_input(changes: dict[str, object], error: type[Exception], words: str):
    """Errors name the value and what to give."""
    given: dict[str, object] = {"f": np.ones(10), "t": np.arange(10.0), "alpha": 0.5}
    with pytest.raises(error, match=words):
        hf.smooth_derivative(**(given | changes))
