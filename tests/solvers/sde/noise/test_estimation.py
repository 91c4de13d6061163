"""The Hurst index from paths: right on average, and inside the interval as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from tests.helpers.thinned import thinned


@pytest.mark.parametrize("index", [0.15, 0.5, 0.85])
@pytest.mark.parametrize("method", ["whittle", "variations", "dfa", "wavelets"])
@thinned(one_in=4)
def test_estimates_and_their_intervals(index: float, method: str) -> None:
    """Of 120 paths of 400 steps: little bias, the spread that is told, and 95 % of the intervals cover H."""
    count = 120
    found = hf.hurst(hf.fbm(400, index, size=count, rng=3), method=method)
    spread = found.H.std()
    assert abs(found.H.mean() - index) < 4 * spread / np.sqrt(count) + 0.005
    assert found.standard_error.mean() == pytest.approx(spread, rel=0.25)
    covered = np.mean((found.interval[0] < index) & (index < found.interval[1]))
    assert covered > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / count)
    assert np.mean(found.p_value < 0.05) < 0.05 + 3.5 * np.sqrt(0.95 * 0.05 / count)


def arfima(n: int, d: float, size: int) -> np.ndarray:
    """Paths of ARFIMA(0, d, 0) from its covariance, gamma_k = gamma_(k-1) (k - 1 + d)/(k - d), in a circulant."""
    k = np.arange(1, n + 1)
    covariance = np.concatenate([[1.0], np.cumprod((k - 1 + d) / (k - d))])
    values = np.fft.fft(np.concatenate([covariance, covariance[-2:0:-1]])).real
    normal = np.random.default_rng(5).normal(size=(2, size, values.size))
    return np.fft.fft(np.sqrt(values / values.size) * (normal[0] + 1j * normal[1])).real[:, :n]


@pytest.mark.parametrize("d", [-0.3, 0.3])
@pytest.mark.parametrize("n", [1000, pytest.param(4000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("process", ["arfima", "noise"])
def test_local_whittle_covers_other_long_memory(process: str, n: int, d: float) -> None:
    """Of 200 paths of either process 95 % of the intervals cover H; Whittle's at all frequencies miss ARFIMA's."""
    count = 200
    data = arfima(n, d, count) if process == "arfima" else np.diff(hf.fbm(n, 0.5 + d, size=count, rng=8))
    found = hf.hurst(data, method="local_whittle", increments=True)
    margin = 3.0 * np.sqrt(0.95 * 0.05 / count)
    assert abs(np.mean((found.interval[0] < 0.5 + d) & (0.5 + d < found.interval[1])) - 0.95) < margin
    assert np.mean(found.p_value < 0.01) < 0.01 + 3.0 * np.sqrt(0.01 / count)
    assert found.standard_error.mean() == pytest.approx(found.H.std(), rel=0.2)
    if process == "arfima":
        low, high = hf.hurst(data, increments=True).interval
        assert np.mean((low < 0.5 + d) & (0.5 + d < high)) < (0.75 if n == 1000 else 0.4)


def test_which_model_fits() -> None:
    """One line names the models that are not rejected, for each path; short memory is none of them."""
    n = 8000
    line = hf.hurst(arfima(n, 0.3, 1)[0], increments=True).fits
    assert line.startswith("ARFIMA(0, d, 0) fits (fractional Gaussian noise: p = ")
    path = hf.fbm(n, 0.8, size=2, rng=1)
    both = hf.hurst(path, method="dfa").fits
    assert both.shape == (2,) and all(each.startswith("fractional Gaussian noise fits (") for each in both)
    steps = np.random.default_rng(3).normal(size=n)
    assert hf.hurst(steps[1:] - 0.6 * steps[:-1], increments=True).fits.startswith("neither model fits (")
    white = hf.hurst(steps, method="local_whittle", increments=True)
    assert white.fits.startswith("fractional Gaussian noise and ARFIMA(0, d, 0) fit (")
    wider = hf.hurst(steps, method="local_whittle", increments=True, frequencies=2000)
    assert wider.standard_error == pytest.approx(0.5 / np.sqrt(2000), rel=0.05)


@pytest.mark.parametrize("index", [0.02, 0.08])
def test_intervals_of_very_rough_paths(index: float) -> None:
    """High frequencies do not leak into low ones: 95 % of the intervals cover H (77 to 91 % did), and no bias."""
    found = hf.hurst(hf.fbm(500, index, size=120, rng=3))
    low, high = found.interval
    assert np.mean((low < index) & (index < high)) > 0.95 - 2.5 * np.sqrt(0.95 * 0.05 / 120)
    assert abs(found.H.mean() - index) < 4.0 * found.H.std() / np.sqrt(120)
    assert found.standard_error.mean() == pytest.approx(found.H.std(), rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["whittle", "variations", "dfa", "wavelets"])
def test_coverage_of_many_paths(method: str) -> None:
    """Of 2,000 paths of 1,000 steps at H = 0.3, 93 to 97 % of the intervals cover H."""
    low, high = hf.hurst(hf.fbm(1000, 0.3, size=2000, rng=4), method=method).interval
    assert 0.93 < np.mean((low < 0.3) & (high > 0.3)) < 0.97


@pytest.mark.parametrize(("index", "noise"), [(0.7, 2.0), pytest.param(0.3, 0.0, marks=pytest.mark.slow)])
def test_white_noise_in_the_values(index: float, noise: float) -> None:
    """The noise biases Whittle's estimate, which its test of fit tells; with noise in the model both are found."""
    count = 30
    path = hf.fbm(1000, index, T=1000.0, size=count, rng=7)
    path = path + noise * np.random.default_rng(1).standard_normal(path.shape)
    found = hf.hurst(path, method="noisy_whittle")
    assert abs(found.H.mean() - index) < 4.0 * found.standard_error.mean() / np.sqrt(count) + 0.01
    assert np.mean((found.interval[0] < index) & (index < found.interval[1])) > 0.85
    assert found.noise.mean() == pytest.approx(noise, abs=0.15) and np.mean(found.p_value < 0.01) < 0.1
    plain = hf.hurst(path)
    if noise:
        assert plain.H.mean() < 0.4 and np.all(plain.p_value < 1e-3)
    else:
        assert np.mean(plain.p_value < 0.01) < 0.1


@pytest.mark.parametrize("method", ["whittle", "dfa", "wavelets"])
def test_a_law_that_does_not_scale_is_flagged(method: str) -> None:
    """A stationary process, which is rough at short times only, has a small p-value."""
    path = hf.noise.FractionalOU(0.5, theta=150.0).sample(np.linspace(0.0, 4.0, 2001), rng=3)
    assert hf.hurst(path, method=method).p_value < 1e-3


def test_wavelets_and_detrending_see_no_trend() -> None:
    """A parabola has no wavelet coefficients; a line within the pieces no fluctuation."""
    path, t = hf.fbm(1000, 0.4, rng=5), np.linspace(0.0, 1.0, 1001)
    for method, trend in (("wavelets", 5.0 * t**2), ("dfa", 5.0 * t)):
        one, two = (hf.hurst(each, method=method) for each in (path, path + trend))
        assert pytest.approx(two.H, abs=1e-8 if method == "wavelets" else 1e-6) == one.H
    with pytest.raises(ShapeError, match="needs at least 128"):
        hf.hurst(path[:100], method="dfa")
    with pytest.raises(ShapeError, match="needs at least 144"):  # two octaves do not show whether a line fits
        hf.hurst(path[:143], method="wavelets")
    assert hf.hurst(path[:144], method="wavelets").standard_error > 0.05


def test_neither_scale_nor_trend_matters() -> None:
    """A factor leaves both estimates, a line that of the variations."""
    path = hf.fbm(2000, 0.4, rng=5)
    line = 3.0 * np.linspace(0, 1, path.size)
    for method in ("whittle", "variations"):
        one, two = hf.hurst(path, method=method).H, hf.hurst(1e6 * path, method=method).H
        assert one == pytest.approx(two, abs=1e-5)
    plain, tilted = (hf.hurst(p, method="variations").H for p in (path, path + line))
    assert plain == pytest.approx(tilted, abs=1e-9)


def test_increments_may_be_given() -> None:
    """The noise instead of the motion gives the same numbers; one path gives floats."""
    path = hf.fbm(500, 0.6, rng=6)
    for method in ("whittle", "variations"):
        motion, noise = hf.hurst(path, method=method), hf.hurst(np.diff(path), method=method, increments=True)
        assert pytest.approx(motion.H, abs=2e-3) == noise.H
        assert isinstance(motion.H, float) and isinstance(motion.interval[0], float)
    narrow, wide = (hf.hurst(path, confidence=p).interval for p in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_refuses() -> None:
    """Too few points, constants, gaps, and options that are none."""
    path = hf.fbm(100, 0.6, rng=7)
    with pytest.raises(ShapeError, match="32 values"):
        hf.hurst(path[:20])
    with pytest.raises(InvalidInputError, match="constant"):
        hf.hurst(np.ones(100))
    for line in (np.arange(100.0), 0.1 * np.arange(100) + 3.0, 1e6 - 0.3 * np.arange(100)):
        for method in ("whittle", "variations"):
            with pytest.raises(InvalidInputError, match="straight line up to rounding"):
                hf.hurst(line, method=method)
    with pytest.raises(InvalidInputError, match="straight line up to rounding"):
        hf.hurst(np.full(100, 0.1), increments=True)
    with pytest.raises(InvalidInputError, match="not finite"):
        hf.hurst(np.where(np.arange(101) == 5, np.nan, path))
    with pytest.raises(InvalidInputError, match="confidence=1.0"):
        hf.hurst(path, confidence=1.0)
    with pytest.raises(InvalidInputError, match="method='rs'"):
        hf.hurst(path, method="rs")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="frequencies=20 is for method='local_whittle'"):
        hf.hurst(path, frequencies=20)
    with pytest.raises(InvalidInputError, match="frequencies=3"):
        hf.hurst(path, method="local_whittle", frequencies=3)
