"""Fits to tracks: the likelihood, how often intervals cover, gaps, drift, confinement; and the walks with labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import toeplitz

import hpfracc as hf
from hpfracc import transport
from hpfracc.errors import AccuracyWarning, InvalidInputError, ShapeError


def tracks(alpha: float, noise: float, *size: int, points: int = 100, rng: int = 1) -> np.ndarray:
    """Fractional Brownian motion with steps of variance 1 (K = 1/2) and localisation errors."""
    paths = hf.fbm(points - 1, 0.5 * alpha, T=points - 1.0, size=size, rng=rng)
    return paths + noise * np.random.default_rng(rng).normal(size=paths.shape)


def covariance(times: np.ndarray, alpha: float, k: float, sigma: float, exposure: float = 0.0) -> np.ndarray:
    """Of increments between these positions, from the closed form of blurred displacements."""
    lag = np.abs(times[:, None] - times)
    squares = 2.0 * k * lag**alpha
    if exposure:
        power = alpha + 2.0
        far = (lag + exposure) ** power + np.abs(lag - exposure) ** power - 2.0 * lag**power - 2.0 * exposure**power
        squares = 2.0 * k * far / (exposure**2 * (alpha + 1.0) * power)
    squares = squares + 2.0 * sigma**2 * (lag > 0)
    return 0.5 * (squares[1:, :-1] + squares[:-1, 1:] - squares[1:, 1:] - squares[:-1, :-1])


@pytest.mark.parametrize("exposure", [0.0, 0.25, 0.5])
def test_likelihood(exposure: float) -> None:
    """With gaps and blur, that of SciPy for the covariance in closed form, at the estimate and none larger nearby."""
    seen = tracks(0.8, 0.4, points=40)
    seen[[7, 8, 20]] = np.nan
    fit = transport.fit_tracks(seen, 0.5, exposure=exposure)
    there = np.flatnonzero(~np.isnan(seen))

    def likelihood(*values: float) -> float:
        steps = np.diff(seen[there])
        return float(stats.multivariate_normal(cov=covariance(0.5 * there, *values, exposure)).logpdf(steps))

    found = [float(fit.alpha), float(fit.K), float(fit.sigma)]
    assert np.isclose(fit.log_likelihood, likelihood(*found), rtol=0, atol=0.05)
    for k in range(3):
        for factor in (0.9, 1.1):
            moved = [value * (factor if j == k else 1.0) for j, value in enumerate(found)]
            assert likelihood(*moved) < fit.log_likelihood + 0.05


def test_noise_no_longer_misleads() -> None:
    """200 tracks of 300 steps with errors of one step: msd says that it misleads, and the fit has the truth."""
    seen = tracks(0.6, 1.0, 200, points=301)
    with pytest.warns(AccuracyWarning, match=r"localisation error of .*fit_tracks"):
        naive = transport.msd(seen, np.arange(301.0))
    assert naive.interval[1] < 0.6
    fit = transport.fit_tracks(seen[:, :101], 1.0)
    for estimate, truth in ((fit.alpha, 0.6), (fit.K, 0.5), (fit.sigma, 1.0)):
        low, high = estimate.interval(0.99)
        assert low < truth < high
        assert high - low < 0.4


def test_no_word_without_noise() -> None:
    """A power law alone is not suspected."""
    transport.msd(tracks(0.6, 0.0, 200, points=301), np.arange(301.0))


@pytest.mark.filterwarnings("ignore:the tracks allow")
@pytest.mark.parametrize(("alpha", "noise"), [(0.6, 0.5), (1.4, 0.0)])
def test_intervals_cover(alpha: float, noise: float) -> None:
    """Of 40 single tracks; the tables of ``benchmarks/lab.py`` have more."""
    fits = transport.fit_tracks(tracks(alpha, noise, 40, points=40), 1.0, each=True)
    for name, truth in {"alpha": alpha, "K": 0.5, "sigma": noise}.items():
        ends = [getattr(fit, name).interval(0.9) for fit in fits]
        assert sum(low <= truth <= high for low, high in ends) >= 31
    assert [len(fits), fits[0].increments] == [40, 39]


def test_intervals_of_long_tracks_along_a_ridge() -> None:
    """A small exponent and a localisation error look alike; the profile on a dense grid has these intervals."""
    for rng, low, high in ((21, 0.17, 0.49), (36, 0.13, 0.5)):
        fit = transport.fit_tracks(hf.fbm(1000, 0.1, T=1000.0, rng=rng), 1.0)
        assert fit.alpha.interval() == pytest.approx((low, high), abs=0.03)
        assert fit.sigma.interval()[0] == 0.0


def test_units() -> None:
    """Positions in other units and another step change K and sigma, and nothing else."""
    seen = tracks(0.7, 0.5, 20, 2)
    one, two = transport.fit_tracks(seen, 1.0), transport.fit_tracks(100.0 * seen, 0.01)
    assert np.isclose(one.alpha, two.alpha, rtol=1e-9)
    assert np.isclose(two.K, one.K * 1e4 / 0.01**one.alpha, rtol=1e-6)
    assert np.allclose(two.sigma.interval(0.9), 100.0 * np.array(one.sigma.interval(0.9)))


def test_gaps_and_unequal_lengths() -> None:
    """A list of tracks with gaps; positions that are missing carry nothing."""
    seen = tracks(0.7, 0.5, 30, 2)
    parts = [track[:, : 40 + 2 * k].copy() for k, track in enumerate(seen)]
    parts[3][:, 10:14] = np.nan
    parts[4][0, 20] = np.nan
    parts[5][:, :3] = np.nan
    fit = transport.fit_tracks(parts, 1.0)
    low, high = fit.alpha.interval(0.999)
    assert low < 0.7 < high
    assert fit.increments == 2 * (sum(part.shape[1] - 1 for part in parts) - 4 - 1 - 3)


def test_drift_is_removed() -> None:
    """Velocities of each track change nothing with ``drift=True``, and the exponent without."""
    seen = tracks(0.8, 0.5, 20)
    moved = seen + np.linspace(-2.0, 2.0, 20)[:, None] * np.arange(100.0)
    fits = [transport.fit_tracks(each, 1.0, drift=True) for each in (seen, moved)]
    assert np.isclose(fits[0].alpha, fits[1].alpha, rtol=1e-6)
    assert fits[0].alpha.interval()[0] < 0.8 < fits[0].alpha.interval()[1]
    assert transport.fit_tracks(moved, 1.0).alpha > 1.5


def test_confinement() -> None:
    """A particle in a harmonic trap: exponent 1, and the plateau 2 K / rate."""
    rng, rate = np.random.default_rng(3), 0.3
    shocks, seen = rng.normal(size=(30, 100)), np.zeros((30, 100))
    seen[:, 0] = shocks[:, 0] / math.sqrt(2.0 * rate)
    for k in range(1, 100):
        kept = math.exp(-rate)
        seen[:, k] = kept * seen[:, k - 1] + math.sqrt((1.0 - kept**2) / (2.0 * rate)) * shocks[:, k]
    fit = transport.fit_tracks(seen, 1.0, confined=True, noise=False)
    assert fit.plateau is not None
    for estimate, truth in ((fit.alpha, 1.0), (fit.K, 0.5), (fit.plateau, 1.0 / rate)):
        low, high = estimate.interval(0.99)
        assert low < truth < high
    assert fit.plateau.interval()[1] < 6.0
    free = transport.fit_tracks(tracks(1.0, 0.0, 40), 1.0, confined=True, noise=False)
    assert free.plateau is not None
    assert free.plateau.interval()[1] == math.inf


def test_long_track_as_toeplitz() -> None:
    """Longer than a piece: the likelihood is that of the whole track."""
    seen = tracks(1.2, 0.3, points=600)
    fit = transport.fit_tracks(seen, 1.0)
    matrix = toeplitz(covariance(np.arange(600.0), float(fit.alpha), float(fit.K), float(fit.sigma))[0])
    exact = stats.multivariate_normal(cov=matrix).logpdf(np.diff(seen))
    assert np.isclose(fit.log_likelihood, exact, rtol=0, atol=0.05)


def test_what_is_not_determined_is_told() -> None:
    """Few positions with noise allow nearly any exponent."""
    with pytest.warns(AccuracyWarning, match="hardly determine"):
        transport.fit_tracks(tracks(0.3, 2.0, points=12), 1.0)


def test_refusals() -> None:
    """Each with the value and a remedy."""
    seen = tracks(0.7, 0.5, 3)
    for paths, words in (
        (seen[:, :4], "track 0 has 4 positions"),
        (np.zeros((2, 30)), "do not move"),
        (seen.T[:, None, :] * np.ones((1, 50, 1)), "transpose"),
        ([seen[0], seen[1] + np.inf], "track 1 has an infinite"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            transport.fit_tracks(paths, 1.0)
    with pytest.raises(ShapeError, match="components"):
        transport.fit_tracks([seen[0], seen[:2]], 1.0)
    with pytest.raises(InvalidInputError, match=r"exposure=2"):
        transport.fit_tracks(seen, 1.0, exposure=2.0)
    with pytest.raises(InvalidInputError, match="level"):
        transport.fit_tracks(seen, 1.0).alpha.interval(95)


@pytest.mark.parametrize(
    ("walk", "alpha"),
    [(transport.LevyWalk(1.6, 2), 1.6), (transport.ScaledBrownian(0.5), 0.5), (transport.TransientDiffusion(0.4), 0.4)],
)
def test_exponents_of_walks(walk: hf.noise.Noise, alpha: float) -> None:
    """Of the mean squared displacement at late times; paths depend on the seed and their number alone."""
    t = np.linspace(0.0, 1000.0, 41)
    paths = walk.sample(t, 600, rng=2)
    found = transport.msd(paths, t, fit=(100.0, 1000.0), confidence=0.999)
    assert found.interval[0] < alpha < found.interval[1]
    np.testing.assert_allclose(walk.sample(t, 5, rng=2, first_path=3), paths[3:8], rtol=1e-12)


def test_laws_of_walks() -> None:
    """Scaled Brownian motion has the variance t^alpha; no flight of a Levy walk is faster than 1."""
    t = np.array([0.0, 0.5, 2.0])
    paths = transport.ScaledBrownian(0.7).sample(t, 20_000, rng=1)
    np.testing.assert_allclose(paths.var(axis=0), t**0.7, rtol=0.05)
    assert transport.ScaledBrownian(0.7).covariance(2.0, 0.5) == 0.5**0.7
    flights = np.diff(transport.LevyWalk(1.5, 3).sample(np.linspace(0, 20, 400), 50, rng=1), axis=-1)
    speed = np.linalg.norm(flights, axis=1) / (20 / 399)
    assert speed.max() < 1.0 + 1e-9
    assert np.mean(speed > 1.0 - 1e-9) > 0.5


def test_labels() -> None:
    """Each track has a model and an exponent in its range."""
    paths, models, alpha = transport.labelled_tracks(60, 30, dimensions=3, noise=0.5, rng=1)
    assert paths.shape == (60, 3, 30)
    assert set(models) == {"ATTM", "CTRW", "FBM", "LW", "SBM"}
    assert np.all((alpha[models == "LW"] > 1.0) & (alpha[models == "LW"] < 2.0))
    again = transport.labelled_tracks(60, 30, dimensions=3, noise=0.5, rng=1)[0]
    np.testing.assert_array_equal(paths, again)
    with pytest.raises(InvalidInputError, match="'LEVY'"):
        transport.labelled_tracks(5, 30, models=["LEVY"])
