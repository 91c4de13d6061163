"""Mean squared displacement: values, exponents, and how often their intervals cover."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import noise, transport
from hpfracc.errors import InvalidInputError, ShapeError
from tests.helpers.thinned import thinned


def test_straight_motion() -> None:
    """x = v t in two dimensions: (v t)^2 in both averages, exponent 2, coefficient v^2."""
    t = np.linspace(0.0, 2.0, 101)
    speeds = np.array([[3.0, 4.0], [4.0, 3.0], [5.0, 0.0]])
    paths = 1.0 + speeds[:, :, None] * t
    for kind in ("ensemble", "time"):
        found = transport.msd(paths, t, kind=kind)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.value, 25.0 * found.lags**2, rtol=1e-10)
        assert np.isclose(found.exponent, 2.0)
        assert np.isclose(found.coefficient, 25.0)
        assert found.paths == 3
    assert np.isclose(found.lags[-1], 0.2)


@pytest.mark.parametrize("count", [20, 100])
@pytest.mark.parametrize("kind", ["ensemble", "time"])
@thinned(one_in=2)
def test_intervals_cover(count: int, kind: str) -> None:
    """In 150 experiments with fractional Brownian motion, near the 90 % that are asked for."""
    t = np.linspace(0.0, 1.0, 33)
    paths = hf.fbm(32, 0.35, size=(150, count), rng=1)
    hits = 0
    for part in paths:
        low, high = transport.msd(part, t, kind=kind, confidence=0.9).interval  # type: ignore[arg-type]
        hits += low < 0.7 < high
    # The standard error of the share is 2.4 %.
    assert 0.82 < hits / 150 < 0.98


def test_intervals_cover_for_walks() -> None:
    """Subdiffusive walks, whose displacements are far from normal."""
    walk = transport.ContinuousTimeRandomWalk(transport.MittagLefflerWaiting(0.6), transport.GaussianJumps())
    t = np.geomspace(1.0, 100.0, 12)
    paths = walk.sample(np.append(0.0, t), (200, 100), rng=2)
    found = [transport.msd(part, np.append(0.0, t), confidence=0.9) for part in paths]
    hits = sum(each.interval[0] < 0.6 < each.interval[1] for each in found)
    assert 0.82 < hits / 200 < 0.96


def test_standard_errors() -> None:
    """Squares of Brownian motion: mean t, standard deviation sqrt(2) t."""
    t = np.linspace(0.0, 1.0, 11)
    found = transport.msd(noise.Brownian().sample(t, 20_000, rng=3), t)
    assert np.all(np.abs(found.value - t[1:]) < 4 * found.standard_error)
    np.testing.assert_allclose(found.standard_error, math.sqrt(2.0 / 20_000) * t[1:], rtol=0.05)


def test_ergodicity_breaking() -> None:
    """Brownian motion: 4 lag / (3 T). Subdiffusive walks: 2 Gamma(1+a)^2 / Gamma(1+2a) - 1 for long paths."""
    t = np.linspace(0.0, 1.0, 2001)
    found = transport.msd(noise.Brownian().sample(t, 300, rng=4), t, kind="time")
    assert found.ergodicity_breaking is not None
    index = int(np.argmin(np.abs(found.lags - 0.02)))
    assert np.isclose(found.ergodicity_breaking[index], 4 / 3 * found.lags[index], rtol=0.35)
    walk = transport.ContinuousTimeRandomWalk(transport.MittagLefflerWaiting(0.5), transport.GaussianJumps())
    t = np.linspace(0.0, 4e5, 401)
    slow = transport.msd(walk.sample(t, 600, rng=5), t, kind="time", fit=(1e3, 1e4))
    assert slow.ergodicity_breaking is not None
    assert abs(slow.ergodicity_breaking[0] - (2 * math.gamma(1.5) ** 2 / math.gamma(2.0) - 1)) < 0.15
    # The time average grows linearly although the ensemble average grows like t^0.5.
    assert abs(slow.exponent - 1.0) < 0.05


def test_one_path() -> None:
    """An exponent, and no interval."""
    t = np.linspace(0.0, 1.0, 1001)
    found = transport.msd(hf.fbm(1000, 0.3, rng=6), t, kind="time", fit=(0.001, 0.02))
    assert abs(found.exponent - 0.6) < 0.15
    assert math.isnan(found.interval[0])
    assert np.all(np.isnan(found.standard_error))


def test_fit() -> None:
    """Only lags inside are used."""
    t = np.arange(0.0, 101.0)
    paths = np.sqrt(np.where(t < 10, t, 0.1 * t**2)) * np.array([[1.0], [-1.0], [1.0]])
    assert np.isclose(transport.msd(paths, t, fit=(1, 9)).exponent, 1.0)
    late = transport.msd(paths, t, fit=(10, 100))
    assert np.isclose(late.exponent, 2.0)
    assert late.fitted == (10.0, 100.0)


def test_refusals() -> None:
    """Typed, with the remedy."""
    t = np.linspace(0.0, 1.0, 9)
    paths = np.ones((3, 9)) * t
    with pytest.raises(ShapeError, match="time is the last axis"):
        transport.msd(paths.T, t)
    with pytest.raises(ShapeError, match="3 or more"):
        transport.msd(paths[:, :2], t[:2])
    with pytest.raises(InvalidInputError, match="no path has moved"):
        transport.msd(np.zeros((3, 9)), t)
    with pytest.raises(InvalidInputError, match="infinite values"):
        transport.msd(paths + np.inf, t)
    with pytest.raises(InvalidInputError, match="equally spaced"):
        transport.msd(paths, t**2, kind="time")
    with pytest.raises(InvalidInputError, match=r"fit=\(2, 3\)"):
        transport.msd(paths, t, fit=(2, 3))
    with pytest.raises(InvalidInputError, match="kind="):
        transport.msd(paths, t, kind="both")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="confidence="):
        transport.msd(paths, t, confidence=95)


@pytest.mark.parametrize("kind", ["ensemble", "time"])
def test_plot(kind: str) -> None:
    """The line has the fitted slope."""
    pytest.importorskip("matplotlib").use("Agg")
    t = np.linspace(0.0, 1.0, 101)
    found = transport.msd(hf.fbm(100, 0.3, size=50, rng=7), t, kind=kind)  # type: ignore[arg-type]
    axes = found.plot()
    x, y = (np.log(values) for values in axes.lines[-1].get_data())
    assert np.isclose(np.diff(y)[0] / np.diff(x)[0], found.exponent)
    assert "paths=50" in repr(found)


@pytest.mark.parametrize("kind", ["ensemble", "time"])
def test_gaps(kind):
    """nan are gaps: the estimate stays close, its interval honest; a path without gaps gives the same as before."""
    t = np.linspace(0.0, 1.0, 201)
    paths = hf.fbm(200, 0.3, size=300, rng=1)
    whole = hf.transport.msd(paths, t, kind=kind)
    holes = np.where(np.random.default_rng(0).random(paths.shape) < 0.3, np.nan, paths)
    holes[:, 0] = np.where(np.arange(300) < 30, np.nan, 0.0)
    found = hf.transport.msd(holes, t, kind=kind)
    low, high = found.interval
    assert low < 0.6 < high and high - low < 1.5 * (whole.interval[1] - whole.interval[0])
    assert np.all(np.abs(found.value - whole.value) < 5.0 * found.standard_error)
    again = hf.transport.msd(np.concatenate([paths, np.full((5, 201), np.nan)]), t, kind=kind)
    np.testing.assert_allclose(again.value, whole.value, rtol=1e-12)
    np.testing.assert_allclose(again.standard_error, whole.standard_error, rtol=1e-12)
    assert again.exponent == pytest.approx(whole.exponent, rel=1e-12)
    with pytest.raises(InvalidInputError, match="no path has values"):
        hf.transport.msd(np.full((2, 201), np.nan), t, kind=kind)
