r"""The Hurst index from the growth of energies with the scale: variations, detrended fluctuations, wavelets.

Each method computes energies of a path at several scales s, of which the logarithms grow like :math:`2 H \log s` for
fractional Brownian motion. Energies at different scales are correlated, and at short ones they do not follow the power
law exactly. So the logarithms are compared with their mean and covariance for fractional Brownian motion of nearly the
same index and length, from 200 sampled paths, by generalised least squares. The sum of squared residuals, in units of
that covariance, tests whether the law of scaling holds: it has Hotelling's law, because the covariance is a sample's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from hpfracc.errors import ShapeError
from hpfracc.solvers.sde.noise.fractional_brownian import fbm

__all__ = ["METHODS", "by_scales"]

#: Sampled paths and their seed, and the longest of them: for longer ones covariances are divided by the length.
_PATHS, _SEED, _LONGEST = 200, 20_240_229, 4096
#: Paths are sampled at multiples of this index, up to the last; an estimate is repeated with those of a closer one.
_GRID, _LAST, _ROUNDS = 0.02, 49, 6
#: Estimates stay inside this interval.
_BOUNDS = 1e-3, 1.0 - 1e-3
#: Steps over which second differences are taken.
_DILATIONS = (1, 2, 3, 4)
#: Daubechies' filter with three vanishing moments: polynomials up to the second degree have no energy.
_LOW_PASS = np.array([0.33267055295008263, 0.8068915093110925, 0.4598775021184916, -0.13501102001025458, 0.0, 0.0])
_LOW_PASS[4:] = -0.08544127388202666, 0.035226291882100656
_HIGH_PASS = _LOW_PASS[::-1] * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
#: Fewest pieces or coefficients at the longest scale, and the number of scales of detrended fluctuations.
_FEWEST, _SCALES = 12, 8

#: Logarithms of the energies of the rows, shape ``(rows, scales)``, and of the scales, for paths as long as the last.
_Energies = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def _variations(levels: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of second differences."""
    found = []
    for m in _DILATIONS:
        second = levels[:, 2 * m :] - 2.0 * levels[:, m:-m] + levels[:, : -2 * m]
        found.append(np.mean(second**2, -1))
    return np.log(np.stack(found, -1)), np.log(_DILATIONS)


def _fluctuations(levels: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of what is left of pieces without their linear trend."""
    scales = np.unique(np.geomspace(6.0, max(12.0, longest / _FEWEST), _SCALES).astype(int))
    found = []
    for s in scales.tolist():
        pieces = levels[:, : levels.shape[-1] // s * s].reshape(len(levels), -1, s)
        pieces = pieces - pieces[:, :, :1]
        basis = np.linalg.qr(np.stack([np.ones(s), np.arange(s)], -1))[0]
        left = pieces - (pieces @ basis) @ basis.T
        found.append(np.mean(left**2, (1, 2)))
    return np.log(np.stack(found, -1)), np.log(scales)


def _octaves(levels: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of wavelet coefficients, divided by the scale."""
    found, rest, octave = [], levels, 0
    while longest / 2.0 ** (octave + 1) >= _FEWEST + _LOW_PASS.size:
        octave += 1
        pieces = np.lib.stride_tricks.sliding_window_view(rest, _LOW_PASS.size, -1)[:, ::2]
        found.append(np.mean((pieces @ _HIGH_PASS) ** 2, -1) / 2.0**octave)
        rest = pieces @ _LOW_PASS
    return np.log(np.stack(found, -1)), math.log(2.0) * np.arange(1, octave + 1)


METHODS: dict[str, _Energies] = {"variations": _variations, "dfa": _fluctuations, "wavelets": _octaves}
#: Fewest points of a path.
_POINTS = {"variations": 32, "dfa": 128, "wavelets": 128}


def by_scales(method: str, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hurst indices of the rows, their standard errors, and the probabilities of residuals as large as theirs."""
    n = levels.shape[-1]
    if n < _POINTS[method]:
        raise ShapeError(f"path has {n} values; method={method!r} needs at least {_POINTS[method]}")
    logs, scales = METHODS[method](levels, min(n, _LONGEST))
    slope = np.polyfit(scales, logs.T, 1)[0] / 2.0
    rows = []
    for energies, index in zip(logs, slope.tolist(), strict=True):
        for _ in range(_ROUNDS):
            place = min(max(round(index / _GRID), 1), _LAST)
            index, error, chance = _fit(method, n, place, energies)
            if abs(index - place * _GRID) <= _GRID:
                break
        rows.append((min(max(index, _BOUNDS[0]), _BOUNDS[1]), error, chance))
    index, error, chance = np.array(rows).T
    return index, error, chance


def _fit(method: str, n: int, place: int, energies: np.ndarray) -> tuple[float, float, float]:
    """Generalised least squares with the law of the index ``place * _GRID`` and its slope there."""
    mean, covariance = _law(method, min(n, _LONGEST), place)
    ends = max(place - 1, 1), min(place + 1, _LAST)
    low, high = (_law(method, min(n, _LONGEST), end)[0] for end in ends)
    # The mean of the samples has an error too.
    covariance = covariance * (min(n, _LONGEST) / n + 1.0 / _PATHS)
    design = np.stack([np.ones(mean.size), (high - low) / ((ends[1] - ends[0]) * _GRID)], -1)
    weighted = np.linalg.solve(covariance, design)
    precision = design.T @ weighted
    change = np.linalg.solve(precision, weighted.T @ (energies - mean))
    left = energies - mean - design @ change
    freedom = mean.size - 2
    square = float(left @ np.linalg.solve(covariance, left))
    ratio = square * (_PATHS - freedom) / ((_PATHS - 1) * freedom)
    # The sampled covariance makes errors too small by this factor on average.
    error = math.sqrt(np.linalg.inv(precision)[1, 1] * (_PATHS - 1) / (_PATHS - freedom - 2))
    return place * _GRID + float(change[1]), error, float(special.fdtrc(freedom, _PATHS - freedom, ratio))


@lru_cache(maxsize=128)
def _law(method: str, n: int, place: int) -> tuple[Any, Any]:
    """Mean and covariance of the logarithms of energies of fractional Brownian motion with n points."""
    paths = fbm(n - 1, place * _GRID, size=_PATHS, rng=_SEED, T=float(n - 1))
    logs, _ = METHODS[method](paths, n)
    return logs.mean(0), np.cov(logs.T)
