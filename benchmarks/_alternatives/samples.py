"""Rows of fits, estimates and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import fft, optimize

import hpfracc as hf
from _alternatives.row import Pair, row
from hpfracc.engine.numerics.mittag_leffler_plan import make_contour_plan

Array = np.ndarray[Any, Any]


@row("zener", "models.zener().fit, 50 points of relaxation, 1 % noise", alternative="curve_fit", aim="1.2 x")
def zener() -> Pair:
    """Both start without tables of the function; the error is the distance from the values of the data."""
    t, true = np.geomspace(0.01, 100.0, 50), np.array([1.0, 2.0, 3.0, 0.6])
    data = hf.models.zener(*true).relaxation(t) * (1.0 + 0.01 * np.random.default_rng(0).standard_normal(t.size))

    def modulus(t: Array, e0: float, e1: float, tau: float, alpha: float) -> Array:
        return np.asarray(e0 + e1 * hf.mittag_leffler(-((t / tau) ** alpha), alpha))

    def ours() -> Array:
        make_contour_plan.cache_clear()
        return np.asarray(hf.models.zener().fit(t, data, "relaxation").estimates)

    def other() -> Array:
        make_contour_plan.cache_clear()
        limits = [0.0, 0.0, 0.0, 0.01], [np.inf, np.inf, np.inf, 1.0]
        return np.asarray(optimize.curve_fit(modulus, t, data, p0=(1.0, 1.0, 1.0, 0.5), bounds=limits)[0])

    return Pair(ours, other, lambda found: float(np.abs(found - true).max()))


@row("hurst", "hurst of 1e6 samples of fbm, H = 0.3", alternative="one periodogram, without an estimate", aim="1 s")
def hurst() -> Pair:
    """The alternative is the least that any estimate in frequency needs."""
    path = hf.fbm(10**6 - 1, 0.3, rng=1)

    def periodogram() -> float:
        steps = np.diff(path)
        return float((np.abs(np.fft.rfft(steps - steps.mean())) ** 2).sum() * np.nan)

    def estimate() -> float:
        return float(hf.hurst(path).H)

    return Pair(estimate, periodogram, lambda found: abs(found - 0.3))


@row(
    "fbm",
    "50 paths of fbm of 16,384 steps, one after the other, on NumPy",
    alternative="NumPy's normals and one FFT, the spectrum kept",
    aim="2 x",
)
def fbm() -> Pair:
    """Davies and Harte's method in both. The error is that of H from the steps of 16,384 values."""
    n, index, generator = 16_384, 0.3, np.random.default_rng(1)
    k = np.arange(n + 1.0)
    law = 0.5 * ((k + 1) ** (2 * index) - 2 * k ** (2 * index) + np.abs(k - 1) ** (2 * index))
    root = np.sqrt(fft.rfft(np.concatenate([law, law[-2:0:-1]])).real.clip(0.0) * n)

    def ours() -> Array:
        with hf.use_backend("numpy"):
            return [np.asarray(hf.fbm(n, index, rng=seed)) for seed in range(50)][-1]

    def one() -> Array:
        numbers = generator.standard_normal(2 * n + 2).view(complex)
        numbers[[0, -1]] = numbers[[0, -1]].real * np.sqrt(2.0)
        return np.append(0.0, np.cumsum(fft.irfft(root * numbers, 2 * n)[:n])) * n**-index

    def other() -> Array:
        return [one() for _ in range(50)][-1]

    return Pair(ours, other, lambda found: abs(float(hf.hurst(found).H) - index))
